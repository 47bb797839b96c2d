"""The two brokers of a comparison, and what a step may do to them besides Spark: make topics, plant and delete records.

Planted records have timestamps that the steps know, so Spark's results are the same with both brokers.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from side_by_side import POLL_S, Side

from trioka.protocol.batch import build
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

PRODUCE_VERSION = 12  # the last one that names topics
DELETE_RECORDS_VERSION = 2
LIST_OFFSETS_VERSION = 9
FIND_COORDINATOR_VERSION = 6
END = -1
GROUP = 0
TRANSACTION = 1
TIMEOUT_MS = 30_000
# A broker that serves groups may first have to make the topic that they are kept in.
COORDINATOR_SECONDS = 5


@dataclass(slots=True, kw_only=True)
class Contestant:
    """`restart` kills the broker without a warning and starts it on the same data and port; None leaves it alone."""

    name: str
    bootstrap: str
    restart: Callable[[], None] | None = None
    side: Side = field(init=False)

    def __post_init__(self) -> None:
        self.connect()

    def connect(self) -> None:
        host, _, port = self.bootstrap.rpartition(":")
        assert host in ("localhost", "127.0.0.1")
        self.side = Side(self.name, int(port), cluster_id="")

    def crash(self) -> None:
        """Kill and start the broker again, if this one is to be killed."""
        if self.restart is not None:
            self.side.client.close()
            self.restart()
            self.connect()

    def plant(self, topic: str, partition: int, records: Iterable[Record]) -> None:
        """Append the records as one batch; their offsets count from nought."""
        data = ProduceRequest.Topic.Partition(index=partition, records=build(records))
        request = ProduceRequest(
            acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[ProduceRequest.Topic(name=topic, partition_data=[data])]
        )
        (answer,) = self.side.ask(request, PRODUCE_VERSION).responses
        (only,) = answer.partition_responses
        assert only.error_code == 0, f"{self.name}: {only}"

    def end(self, topic: str, partition: int) -> int:
        """The offset behind the last record."""
        place = ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=END)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[ListOffsetsRequest.Topic(name=topic, partitions=[place])],
            timeout_ms=TIMEOUT_MS,
        )
        (answer,) = self.side.ask(request, LIST_OFFSETS_VERSION).topics
        (only,) = answer.partitions
        assert only.error_code == 0, f"{self.name}: {only}"
        end: int = only.offset
        return end

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        place = DeleteRecordsRequest.Topic.Partition(partition_index=partition, offset=offset)
        topics = [DeleteRecordsRequest.Topic(name=topic, partitions=[place])]
        (answer,) = self.side.ask(
            DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS), DELETE_RECORDS_VERSION
        ).topics
        (only,) = answer.partitions
        assert only.error_code == 0, f"{self.name}: {only}"

    def has_coordinator(self, kind: int) -> bool:
        """Whether the broker answers that it coordinates groups, or transactions."""
        deadline = time.monotonic() + COORDINATOR_SECONDS
        while True:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["spark"])
            answer = self.side.ask(request, FIND_COORDINATOR_VERSION)
            if answer is not None and all(one.error_code == 0 for one in answer.coordinators):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
