"""The topics behind the offsets of a pipeline.

If a topic is deleted and created again, the same offsets refer to other records, and a reader that continues from the
old offsets skips new records. Kafka gives each topic an id when it is created, so the ids are stored with the offsets:
in the checkpoint, and in each commit of a table.

They are compared at the start, and once more for each batch after its records were read and before its rows are seen:
ids are never reused, so records that were read between two equal results belong to the same topic.
"""

import threading
import time
from collections.abc import Iterable, Mapping

from ..errors import InvalidPipeline
from ..installation.cache import Unreachable
from ..runner.checkpoint import Checkpoint
from .broker_view import BrokerView
from .brokers import Brokers
from .offsets import is_another_topic

# A broker may restart between a batch and its commit; Spark waits about as long for it.
PATIENCE_S = 60.0
POLL_S = 0.5


def check_ids(known: Mapping[str, str], now: Mapping[str, str], checkpoint: str) -> None:
    """Raise `InvalidPipeline` if a topic was created again."""
    problems = [
        f"The topic '{topic}' was deleted and created again since this pipeline read it (its id was {known[topic]} and "
        f"is {now[topic]}), so its offsets are of other records. If the new topic is to be read from its start, remove "
        f"the checkpoint {checkpoint} and run the pipeline again: what a table holds is not read twice."
        for topic in known
        if is_another_topic(known, now, topic)
    ]
    if problems:
        raise InvalidPipeline(problems)


class Topics:
    """The ids of the topics that a run reads, for both of its queries."""

    def __init__(self, brokers: Brokers, checkpoint: Checkpoint, address: str | None = None) -> None:
        """`address` is the checkpoint to remove for a new start, if the ids stand in a part of it."""
        self._brokers = brokers
        self._checkpoint = checkpoint
        self._address = address or checkpoint.address
        self._ids = checkpoint.topics()
        self._lock = threading.Lock()
        self._view: BrokerView | None = None

    def __enter__(self) -> "Topics":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._close()

    def confirm(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of these topics; compares known ids, and stores ids of new topics."""
        names = sorted(topics)
        with self._lock:
            now = self._asked(names)
            check_ids(self._ids, now, self._address)
            if not now.items() <= self._ids.items():
                self._ids |= now
                self._checkpoint.keep_topics(self._ids)
            return {topic: self._ids[topic] for topic in names if topic in self._ids}

    def confirm_known(self) -> None:
        """Compare the ids of all topics that were read before."""
        self.confirm(self._ids)

    def _asked(self, names: list[str]) -> dict[str, str]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self._view is None:
                    self._view = BrokerView(self._brokers)
                return self._view.topic_ids(names)
            except Unreachable:
                self._close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)

    def _close(self) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None
