"""The common interface of all clients, so that one test checks a broker with each of them.

A client that is written in Python implements these methods itself; a client in another language is a program that reads
commands as lines of JSON (`program.py`). The features that a client lacks are in its `lacks`, with the reason; a test
that needs one calls `client.must("…")` first. A client in a group is a process of its own (`member.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import pytest

EARLIEST, LATEST = -2, -1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Within this time everything here is done many times over; only a broker that does not answer takes longer.
PATIENCE_SECONDS = 30
# The code of an error that no broker sent.
NO_CODE = -1

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as it is written, and as it must be read again. The partition is chosen by the writer, never hashed."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp: int = 0
    partition: int = 0


class Read(NamedTuple):
    offset: int
    record: Record


class Partition(NamedTuple):
    id: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`brokers` by id, each with its host and port."""

    brokers: Mapping[int, tuple[str, int]]
    controller: int


class Refused(Exception):
    """The broker answered with an error, and the client passed it on."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"{code}: {said}")
        self.code = code


class Client(ABC):
    name: str
    # What this client has no way to do, and why.
    lacks: Mapping[str, str] = {}
    # Whether it changes single keys of a configuration (IncrementalAlterConfigs), or replaces the whole (AlterConfigs).
    alters_incrementally = True

    def must(self, ability: str) -> None:
        """Skips the test if the client lacks this feature."""
        if reason := self.lacks.get(ability):
            pytest.skip(f"{self.name} {reason}")

    @property
    def is_alive(self) -> bool:
        """False of a client that ended, or was ended, in an earlier test."""
        return True

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def cluster(self) -> Cluster: ...

    @abstractmethod
    def topics(self) -> set[str]: ...

    @abstractmethod
    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None: ...

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def describe_topic(self, topic: str) -> list[Partition]: ...

    @abstractmethod
    def add_partitions(self, topic: str, total: int) -> None: ...

    @abstractmethod
    def topic_config(self, topic: str) -> dict[str, str | None]:
        """Every key, those with default values too."""

    @abstractmethod
    def broker_config(self, broker: int) -> dict[str, str | None]: ...

    @abstractmethod
    def alter_topic_config(self, topic: str, put: Mapping[str, str], drop: Sequence[str] = ()) -> None: ...

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> None: ...

    @abstractmethod
    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[int]:
        """Send them all, wait for all answers, return the offsets in the order of the records; with acks 0, nothing."""

    @abstractmethod
    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Read]:
        """The first `count` records from an offset on, by an assigned partition. EARLIEST is an offset too."""

    @abstractmethod
    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int:
        """The offset of the first record of that timestamp or later, -1 without one; or EARLIEST, or LATEST."""


def gave_up(wanted: int, got: int) -> NoReturn:
    """The result of `consume` when the records do not come."""
    raise TimeoutError(f"{got} of {wanted} records came within {PATIENCE_SECONDS} s")
