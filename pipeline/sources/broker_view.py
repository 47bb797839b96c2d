"""A pipeline's topics on the brokers: partitions, offsets, and the committed offsets of its group.

It sends client requests with kafka-python, so it works with any Kafka. Results are snapshots; the connector sends its
own requests when it reads. An unreachable broker raises `Unreachable`, with one sentence.

A pipeline has a consumer group of its name, without members: after each batch it commits its offsets like a tool that
resets offsets. So every tool that shows the lag of a group shows the lag of a pipeline.
"""

import difflib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from trioka.protocol.lazy_dataclass import frozen

from ..declaration.model import Positions, Source, Start
from ..errors import InvalidPipeline
from ..installation.cache import Unreachable
from .bootstrap import reach
from .brokers import Brokers
from .offsets import Ends

REQUEST_TIMEOUT_MS = 15_000
# The special timestamps of ListOffsets, by Kafka's protocol.
AT_EARLIEST = -2
AT_LATEST = -1
NO_ID = str(uuid.UUID(int=0))


@frozen
class Lag:
    """One partition: the committed offset (None: nothing yet), the end offset, and the lag."""

    topic: str
    partition: int
    committed: int | None
    begin: int
    end: int

    @property
    def records(self) -> int:
        return max(0, self.end - max(self.committed or 0, self.begin))


class BrokerView:
    """A connection to the brokers. Use it in a `with`."""

    def __init__(self, brokers: Brokers) -> None:
        settings = brokers.client_settings()
        reach(brokers.bootstrap, is_plain=brokers.is_plain)
        self.bootstrap = brokers.bootstrap
        with _reachable(self.bootstrap):
            self._admin: Any = KafkaAdminClient(
                **settings, client_id="trioka-pipeline", request_timeout_ms=REQUEST_TIMEOUT_MS
            )

    def __enter__(self) -> "BrokerView":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._admin.close()

    def partitions(self) -> dict[str, list[int]]:
        """Every topic except internal ones, with the numbers of its partitions."""
        with _reachable(self.bootstrap):
            described = self._admin.describe_topics()
        return {
            topic["name"]: sorted(one["partition_index"] for one in topic["partitions"])
            for topic in described
            if not topic.get("is_internal")
        }

    def sources(self, source: Source) -> dict[str, list[int]]:
        """The topics that a source names or matches; `InvalidPipeline` names every missing one."""
        there = self.partitions()
        if source.pattern is not None:
            found = {name: there[name] for name in sorted(there) if re.fullmatch(source.pattern, name)}
            if not found:
                raise InvalidPipeline(f"source.pattern: no topic on {self.bootstrap} matches '{source.pattern}'.")
            return found
        missing = [name for name in source.topics if name not in there]
        if missing:
            raise InvalidPipeline([f"source.topics: {self.missing(name, there)}" for name in missing])
        return {name: there[name] for name in source.topics}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of the given topics that exist; brokers before Kafka 2.8 report none."""
        with _reachable(self.bootstrap):
            described = self._admin.describe_topics(list(topics))
        found = {topic["name"]: str(topic.get("topic_id") or NO_ID) for topic in described if not topic["error_code"]}
        return {name: id for name, id in found.items() if id != NO_ID}

    def missing(self, name: str, there: Mapping[str, object]) -> str:
        near = difflib.get_close_matches(name, there, n=1)
        hint = f" did you mean {near[0]}?" if near else ""
        return f"topic '{name}' does not exist on {self.bootstrap};{hint} create it: trioka topics create {name}"

    def offsets(self, partitions: Mapping[str, list[int]], at: int) -> Ends:
        """The first offset whose record is not older than `at` (milliseconds, or one of the two ends). For a partition
        without such a record, its end offset.
        """
        requested = {TopicPartition(topic, one): at for topic, ones in partitions.items() for one in ones}
        with _reachable(self.bootstrap):
            answers = self._admin.list_partition_offsets(requested) if requested else {}
            late = {key: AT_LATEST for key, answer in answers.items() if answer.offset < 0}
            if late:
                answers |= self._admin.list_partition_offsets(late)
        found: Ends = {topic: {} for topic in partitions}
        for key, answer in answers.items():
            found[key.topic][key.partition] = answer.offset
        return found

    def resolve(self, partitions: Mapping[str, list[int]], start: Start) -> Ends:
        """Offsets for every partition, none of them -1 or -2. Partitions that the given offsets leave out begin at the
        earliest.
        """
        if start.timestamp_ms is not None:
            return self.offsets(partitions, start.timestamp_ms)
        if start.offsets is None:
            return self.offsets(partitions, AT_LATEST if start.at == "latest" else AT_EARLIEST)
        self.check_named(partitions, start.offsets)
        begins, ends = self.offsets(partitions, AT_EARLIEST), self.offsets(partitions, AT_LATEST)
        found: Ends = {}
        for topic, ones in begins.items():
            for one, begin in ones.items():
                wanted = start.offsets.get(topic, {}).get(one, AT_EARLIEST)
                known = {AT_EARLIEST: begin, AT_LATEST: ends[topic][one]}
                found.setdefault(topic, {})[one] = known.get(wanted, wanted)
        return found

    def check_named(self, partitions: Mapping[str, list[int]], offsets: Positions) -> None:
        wrong = [
            f"start_offsets: {topic}-{one} is not a partition of this source."
            for topic, ones in offsets.items()
            for one in ones
            if one not in partitions.get(topic, [])
        ]
        if wrong:
            raise InvalidPipeline(wrong)

    def commit(self, group: str, offsets: Positions) -> None:
        """Commit the pipeline's progress to its group."""
        wanted = {
            TopicPartition(topic, one): OffsetAndMetadata(offset, "", -1)
            for topic, ones in offsets.items()
            for one, offset in ones.items()
        }
        with _reachable(self.bootstrap):
            answers = self._admin.alter_group_offsets(group, wanted)
        refused = {key: error.__name__ for key, error in answers.items() if error.errno != 0}
        if refused:
            raise Unreachable(f"The group {group} refused the offsets of {len(refused)} partitions: {refused}.")

    def committed(self, group: str) -> Ends:
        """The committed offsets of the group; nothing if there are none."""
        with _reachable(self.bootstrap):
            answers = self._admin.list_group_offsets({group: None})
        found: Ends = {}
        for key, answer in answers.get(group, {}).items():
            if answer.offset >= 0:
                found.setdefault(key.topic, {})[key.partition] = answer.offset
        return found

    def lag(self, source: Source, committed: Positions) -> list[Lag]:
        """The lag of each partition of the source."""
        partitions = self.sources(source)
        begins, ends = self.offsets(partitions, AT_EARLIEST), self.offsets(partitions, AT_LATEST)
        return [
            Lag(
                topic=topic,
                partition=one,
                committed=committed.get(topic, {}).get(one),
                begin=begin,
                end=ends[topic][one],
            )
            for topic, ones in begins.items()
            for one, begin in ones.items()
        ]


@contextmanager
def _reachable(bootstrap: str) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        text = str(error).strip().rstrip(".") or type(error).__name__
        raise Unreachable(f"{bootstrap} failed: {text}.") from None
