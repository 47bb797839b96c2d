"""A client of Apache Kafka, which confirms a change before it is visible on the whole broker.

trioka guarantees more: after the response to its creation, a topic can be used at once. The tests verify that without
waits. With Apache Kafka another client waits after each change until it is visible.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from .client import LATEST, PATIENCE_SECONDS, Client, Refused
from .confluent import Confluent

LOOK_SECONDS = 0.01


class Patient:
    """Everything that the client does, and a wait after what changes the cluster."""

    def __init__(self, client: Client, observer: Confluent) -> None:
        self._client = client
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self._client.create_topic(topic, partitions=partitions, config=config)
        self._until(lambda: self._is_served(topic, partitions))

    def add_partitions(self, topic: str, total: int) -> None:
        self._client.add_partitions(topic, total)
        self._until(lambda: len(self._observer.describe_topic(topic)) == total)

    def delete_topic(self, topic: str) -> None:
        self._client.delete_topic(topic)
        self._until(lambda: topic not in self._observer.topics())

    def alter_topic_config(self, topic: str, put: Mapping[str, str], drop: Sequence[str] = ()) -> None:
        self._client.alter_topic_config(topic, put, drop)
        self._until(lambda: put.items() <= self._observer.topic_config(topic).items())

    def _is_served(self, topic: str, partitions: int) -> bool:
        try:
            self._observer.topic_config(topic)
            return all(self._observer.offset_at(topic, LATEST, partition) >= 0 for partition in range(partitions))
        except Refused:
            return False

    def _until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert time.monotonic() < deadline, "the change was confirmed and cannot be seen"
            time.sleep(LOOK_SECONDS)


def patient(client: Client, observer: Confluent) -> Client:
    return cast(Client, Patient(client, observer))
