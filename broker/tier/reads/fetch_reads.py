"""Reads of one Fetch from the object store: collected by the first attempt, run together, and used by the next one.

All partitions of a request are read at once. A partition that has no answer in time gets an empty result, as in Kafka;
one whose read failed gets the error.
"""

from typing import TYPE_CHECKING

import trio

from trioka.protocol.errors import KafkaError

from ...replication.partitions import Replica
from ..log_facts import id_of
from .remote_read import NOTHING_READ, RemotePlace, RemoteRead, RemoteReadRequest

if TYPE_CHECKING:
    from ..tiered_storage import TieredStorage


class FetchReads:
    __slots__ = ("_results", "_tier", "_wanted")

    def __init__(self, tier: "TieredStorage") -> None:
        self._tier = tier
        self._wanted: dict[tuple[Replica, int], RemoteReadRequest] = {}
        self._results: dict[tuple[Replica, int], RemoteRead | KafkaError] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def result(
        self, replica: Replica, offset: int, end_offset: int, max_bytes: int, at_least_one: bool, is_committed: bool
    ) -> RemoteRead | None:
        """The result; None if the next `run` will read it. Raises the error of the read."""
        key = (replica, offset)
        found = self._results.get(key)
        if isinstance(found, KafkaError):
            raise found
        if found is None:
            place = RemotePlace(id_of(replica), replica.log)
            self._wanted[key] = RemoteReadRequest(place, offset, end_offset, max_bytes, at_least_one, is_committed)
        return found

    async def run(self) -> None:
        wanted, self._wanted = self._wanted, {}
        async with trio.open_nursery() as nursery:
            for key, request in wanted.items():
                nursery.start_soon(self._read, key, request)

    async def _read(self, key: tuple[Replica, int], request: RemoteReadRequest) -> None:
        try:
            found = await self._tier.reader.read(request)
        except KafkaError as error:
            self._results[key] = error
        else:
            self._results[key] = NOTHING_READ if found is None else found
