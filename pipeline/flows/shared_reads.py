"""Which flows share one read of their topics.

Flows share a read if they have no state, read Kafka once with the same options, and begin together. It has a checkpoint
of its own:

    reads/<first flow>/flows.json       the names of its flows
    reads/<first flow>/records/         Spark's checkpoint

A flow that cannot go on with the others, because it has failed or now reads something else, leaves with a copy of the
checkpoint, and is by itself from then on; so is a flow that is added later, or made anew from its table.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from trioka.protocol.lazy_dataclass import frozen

from ..graph.elements import Flow
from ..runner.checkpoint import RECORDS, RUN, Checkpoint
from ..tables.folder import Folder
from .batch_plan import source_of

READS, FLOWS = "reads", "flows"
MEMBERS_FILE = "flows.json"
COPIED = (RECORDS, "brokers", RUN)


@frozen
class Read:
    """One streaming query, with the address of its checkpoint."""

    address: str
    flows: tuple[Flow, ...]


class SharedReads:
    """The reads below the checkpoint of a graph. `has_rows` says whether the target of a flow has rows of it."""

    def __init__(self, spark: SparkSession, address: str, has_rows: Callable[[Flow], bool]) -> None:
        self._spark = spark
        self._address = address
        self._folder = Folder(spark, address)
        self._has_rows = has_rows

    def reads(self, levels: Sequence[Sequence[Flow]], frames: Mapping[str, DataFrame]) -> list[Read]:
        """The queries that run these flows. Flows of one level start together, so only they share a read."""
        flows = [flow for level in levels for flow in level]
        shareable: dict[tuple[int, frozenset[tuple[str, str]]], list[Flow]] = {}
        for number, level in enumerate(levels):
            for flow in level:
                source = source_of(frames[flow.name])
                if source is not None and not flow.settings:
                    shareable.setdefault((number, frozenset(source.items())), []).append(flow)
        found: list[Read] = []
        for name, members in self._known().items():
            there = [flow for flow in flows if flow.name in members]
            staying = max((_named(alike, members) for alike in shareable.values()), key=len, default=[])
            if self._is_lost(name, there):
                self._folder.delete(READS, name)
                continue
            for flow in there:
                if flow not in staying:
                    self.leave(f"{self._address}/{READS}/{name}", flow.name)
            if staying:
                found.append(Read(address=f"{self._address}/{READS}/{name}", flows=tuple(staying)))
        taken = {flow.name for read in found for flow in read.flows}
        for alike in shareable.values():
            fresh = [flow for flow in alike if flow.name not in taken and self._is_fresh(flow)]
            if len(fresh) > 1:
                found.append(self._begun(fresh))
                taken |= {flow.name for flow in fresh}
        return [*found, *(self._alone(flow) for flow in flows if flow.name not in taken)]

    def leave(self, address: str, name: str) -> None:
        """Give a flow a copy of the checkpoint of its read, with which it goes on by itself."""
        read = address.removeprefix(f"{self._address}/")
        own = f"{FLOWS}/{name}"
        for part in COPIED:
            self._folder.delete(own, part)
            self._folder.copy(f"{read}/{part}", f"{own}/{part}")
        copy = Checkpoint(self._spark, f"{self._address}/{own}")
        if not copy.is_new(RECORDS):
            copy.become_copy(RECORDS)
        others = [one for one in self._members(read) if one != name]
        self._folder.write(json.dumps({"flows": others}), read, MEMBERS_FILE)

    def is_shared(self, address: str) -> bool:
        return address.startswith(f"{self._address}/{READS}/")

    def _alone(self, flow: Flow) -> Read:
        return Read(address=f"{self._address}/{FLOWS}/{flow.name}", flows=(flow,))

    def _begun(self, flows: Sequence[Flow]) -> Read:
        names = set(self._known())
        name = next(one for one in _candidates(flows[0].name) if one not in names)
        self._folder.make(READS, name)
        self._folder.write(json.dumps({"flows": [flow.name for flow in flows]}), READS, name, MEMBERS_FILE)
        return Read(address=f"{self._address}/{READS}/{name}", flows=tuple(flows))

    def _known(self) -> dict[str, list[str]]:
        """The flows of each read that has begun."""
        return {
            name: self._members(f"{READS}/{name}")
            for name in self._folder.names(READS)
            if self._folder.exists(READS, name, MEMBERS_FILE)
        }

    def _members(self, read: str) -> list[str]:
        found = Checkpoint(self._spark, f"{self._address}/{read}").parsed(MEMBERS_FILE).get("flows")
        return [str(one) for one in found] if isinstance(found, list) else []

    def _is_lost(self, name: str, flows: Iterable[Flow]) -> bool:
        is_new = Checkpoint(self._spark, f"{self._address}/{READS}/{name}").is_new(RECORDS)
        return is_new and any(map(self._has_rows, flows))

    def _is_fresh(self, flow: Flow) -> bool:
        own = Checkpoint(self._spark, f"{self._address}/{FLOWS}/{flow.name}")
        return own.is_new(RECORDS) and not self._has_rows(flow)


def _named(flows: Iterable[Flow], names: Sequence[str]) -> list[Flow]:
    return [flow for flow in flows if flow.name in names]


def _candidates(name: str) -> Iterable[str]:
    yield name
    for number in range(2, 1 << 16):
        yield f"{name}-{number}"
