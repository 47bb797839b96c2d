"""What tests do with topics, records and committed offsets, for one broker and for a cluster."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trioka.cli.client.cluster_client import TopicPartition

from .client import TIMEOUT_S, Client, Payload, Record
from .clock_control import Clock
from .faults.faults import Length, seconds_of


class TopicCalls:
    clock: Clock

    def _new_client(self) -> Client:
        raise NotImplementedError

    def _await_topic(self, topic: str) -> None:
        """Returns when records can be written to the topic, which is created if the broker is configured to."""

    def produce(
        self,
        topic: str,
        *values: Payload,
        key: Payload = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> list[int]:
        """Write records in one batch and return their offsets. Without a partition, a key chooses it as Kafka's default
        partitioner does; records without a key go to partition 0. Timestamps are the broker's time.
        """
        stamp = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        self._await_topic(topic)
        return self._new_client().produce(
            topic, values, key=key, partition=partition, timestamp_ms=stamp, headers=headers
        )

    def produce_json(
        self,
        topic: str,
        *values: Any,
        key: Payload = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> list[int]:
        """Like `produce`, with values as JSON. None becomes `null`, not a tombstone. `Record.json()` reads them."""
        texts = [json.dumps(value, ensure_ascii=False) for value in values]
        return self.produce(topic, *texts, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)

    def consume(
        self,
        topic: str,
        count: int = 1,
        *,
        partition: int | None = None,
        committed: bool = False,
        timeout: Length = TIMEOUT_S,
    ) -> list[Record]:
        """The first `count` records; waits for them, and raises TimeoutError if they do not arrive."""
        return self._new_client().consume(topic, count, partition, committed, seconds_of(timeout))

    @contextmanager
    def expect(
        self, topic: str, count: int = 1, *, committed: bool = False, timeout: Length = TIMEOUT_S
    ) -> Iterator[list[Record]]:
        """At the end of the block, wait until `count` records have been written to the topic since its beginning, and
        put them into the list; TimeoutError if they are not. An exception of the block is raised at once.

            with kafka.expect("invoices", 2) as invoices:
                place_orders()
            assert invoices[0].json()["cents"] == 300
        """
        client = self._new_client()
        ends = client.ends(topic)
        found: list[Record] = []
        yield found
        found += self._new_client().consume_from(topic, ends, count, committed, seconds_of(timeout))

    def topics(self) -> list[str]:
        """The names of all topics, without Kafka's internal ones."""
        return self._new_client().topics()

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Returns when it is gone."""
        self._new_client().delete_topic(name)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group by topic and partition; empty if there are none."""
        return self._new_client().committed(group)

    def wait_group(self, group: str, lag: int = 0, *, topic: str | None = None, timeout: Length = TIMEOUT_S) -> None:
        """Wait, instead of a sleep, until a group has committed all but `lag` records of the topics that it reads. Also
        waits for a group that has not committed yet. The TimeoutError contains the lag.
        """
        self._new_client().wait_group(group, lag, topic, seconds_of(timeout))
