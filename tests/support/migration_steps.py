"""Steps for scenarios about groups in which both protocols meet, beside those of `consumer_steps.py`.

x joins-classic topics=orders instance=i cooperative session=10000 protocols=range
x joins-again · x syncs · x beats-classic · x leaves-classic · x listens
policy none|upgrade|downgrade|both
"""

from dataclasses import replace
from typing import Any

from support.classic_consumer import ClassicConsumer
from support.consumer_steps import STEPS as CONSUMER_STEPS
from support.consumer_steps import ConsumerWorld
from support.scenarios import Line, Steps

from trioka.coordinator.classic.group import ClassicGroup
from trioka.coordinator.consumer_protocol import read_assignment
from trioka.protocol.internal_records.classic_groups import GroupMetadataKey, GroupMetadataValue
from trioka.protocol.schema import Entry


class MigrationWorld(ConsumerWorld):
    def __init__(self) -> None:
        super().__init__()
        self.groups.settings = replace(self.groups.settings, assignment_interval_ms=0)
        self.classic: dict[str, ClassicConsumer] = {}
        self._names: dict[str, str] = {}

    def note(self, name: str, said: str) -> None:
        consumer = self.classic[name]
        if said.endswith("has its share"):
            said = said.replace("has its share", self.show(self._listed(consumer)))
        self.notes.append(f"{name}: {said or 'waits'}")
        self.groups.at_work.failure = None

    def happened(self) -> list[str]:
        return [self._named(line) for line in super().happened()]

    def _record(self, key: Any, value: Entry | None) -> str:
        if not isinstance(key, GroupMetadataKey):
            return super()._record(key, value)
        if value is None:
            return "classic group gone"
        assert isinstance(value, GroupMetadataValue)
        shares = "".join(f" {m.member_id}={self._assigned(m.assignment)}" for m in value.members)
        return f"classic group {value.generation} {value.protocol} led by {value.leader}:{shares}"

    def _assigned(self, blob: bytes) -> str:
        topics = self.groups.topics
        listed = read_assignment(blob).assigned_partitions
        known = [(topic.id, assigned.partitions) for assigned in listed if (topic := topics.by_name(assigned.topic))]
        return self.show(known)

    def _named(self, line: str) -> str:
        """Ids that the broker generated are shown as the names of their clients."""
        group = self.groups.at_work.coordinator.groups.get("g")
        if isinstance(group, ClassicGroup):  # some have not received their ids yet
            self._names |= {member.id: member.client_id.removeprefix("client-") for member in group.members}
        self._names |= {consumer.id: consumer.name for consumer in self.classic.values() if consumer.id}
        for member_id, name in self._names.items():
            line = line.replace(member_id, name)
        return line

    def _listed(self, consumer: ClassicConsumer) -> list[tuple[bytes, list[int]]]:
        return [(topic, [n for t, n in consumer.has if t == topic]) for topic in sorted({t for t, _ in consumer.has})]


def _joins_classic(world: MigrationWorld, line: Line) -> None:
    world.classic[line.who] = ClassicConsumer(
        world.groups,
        line.who,
        topics=tuple(line.options.get("topics", "orders").split(",")),
        instance_id=line.options.get("instance"),
        is_cooperative="cooperative" in line.words,
        session_timeout_ms=line.number("session", 10_000),
        rebalance_timeout_ms=line.number("timeout", 20_000),
        protocols=tuple(line.options.get("protocols", "range").split(",")),
    )
    world.note(line.who, world.classic[line.who].join())


def _joins_again(world: MigrationWorld, line: Line) -> None:
    world.note(line.who, world.classic[line.who].join())


def _syncs(world: MigrationWorld, line: Line) -> None:
    world.note(line.who, world.classic[line.who].sync())


def _beats(world: MigrationWorld, line: Line) -> None:
    world.note(line.who, world.classic[line.who].beat())


def _leaves(world: MigrationWorld, line: Line) -> None:
    world.note(line.who, world.classic[line.who].leave())


def _listens(world: MigrationWorld, line: Line) -> None:
    world.note(line.who, world.classic[line.who].listen())


def _policy(world: MigrationWorld, line: Line) -> None:
    world.groups.settings = replace(
        world.groups.settings,
        may_upgrade=line.words[0] in ("upgrade", "both"),
        may_downgrade=line.words[0] in ("downgrade", "both"),
    )


def _kind(world: MigrationWorld, line: Line) -> None:
    group = world.groups.at_work.coordinator.groups.get("g")
    world.notes.append("there is no group" if group is None else f"{type(group).__name__}, {group.state}")


STEPS: Steps[MigrationWorld] = {
    **CONSUMER_STEPS,
    "joins-classic": _joins_classic,
    "joins-again": _joins_again,
    "syncs": _syncs,
    "beats-classic": _beats,
    "leaves-classic": _leaves,
    "listens": _listens,
    "policy": _policy,
    "kind": _kind,
}
