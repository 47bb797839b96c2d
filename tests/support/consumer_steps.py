"""Steps for scenarios about consumer groups, and their world: one coordinator, one group, many consumers.

The name of a consumer is its id. Each of its heartbeats has its partitions; it revokes or takes partitions
when it `obeys`.

    a joins topics=orders pattern=ord.* instance=i assignor=range timeout=30000
    a beats [silently] epoch=2 owning=orders:0-2 topics=clicks pattern=c.*
    a obeys                             has what its last response assigned
    a leaves [for-a-while]
    a commits orders-0 epoch=2
    topic orders 6                      is created, grows, or (0) is deleted
    time 3000 · crash · fail · settings session_timeout_ms=1000 · describe · delete
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from support.consumer_groups import GROUP, REBALANCE_TIMEOUT_MS, Consumer, ConsumerGroups, Partitions, as_reported
from support.known_topics import KnownTopics
from support.scenarios import Line, Steps

from trioka.coordinator.consumer.member import Phase
from trioka.coordinator.record_codec import GROUPS
from trioka.protocol.errors import CoordinatorNotAvailable, KafkaError
from trioka.protocol.internal_records import consumer_groups as ledger
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from trioka.protocol.schema import Entry

OFFSETS_WITH_EPOCHS = 9


class ConsumerWorld:
    def __init__(self) -> None:
        self.groups = ConsumerGroups(KnownTopics(), assignment_interval_ms=1000)
        self.consumers: dict[str, Consumer] = {}
        self.notes: list[str] = []
        self._shown = 0

    def consumer(self, name: str) -> Consumer:
        return self.consumers[name]

    def ask(self, name: str, epoch: int, said: Mapping[str, Any]) -> None:
        try:
            response = self.groups.heartbeat(name, epoch, **said)
        except KafkaError as error:
            self.notes.append(f"{name}: {error.name}")
        else:
            if name in self.consumers:
                self.consumers[name].hear(response)
            self.notes.append(f"{name}: {self._answer(response)}")
        finally:
            self.groups.at_work.failure = None

    def _answer(self, response: ConsumerGroupHeartbeatResponse) -> str:
        if response.assignment is None:
            return f"epoch {response.member_epoch}"
        listed = ((topic.topic_id, topic.partitions) for topic in response.assignment.topic_partitions)
        return f"epoch {response.member_epoch}, {self.show(listed)}"

    def happened(self) -> list[str]:
        log = self.groups.at_work.log
        decoded = [GROUPS.decode(key, value) for key, value, _ in log[self._shown :]]
        kept = [f"kept: {self._record(found.key, found.value)}" for found in decoded if found is not None]
        self._shown = len(log)
        notes, self.notes = self.notes, []
        return kept + notes

    def _record(self, key: Any, value: Entry | None) -> str:
        kinds: dict[type, str] = {
            ledger.ConsumerGroupMemberMetadataKey: "member",
            ledger.ConsumerGroupCurrentMemberAssignmentKey: "place of",
            ledger.ConsumerGroupTargetAssignmentMemberKey: "target of",
            ledger.ConsumerGroupTargetAssignmentMetadataKey: "target",
            ledger.ConsumerGroupMetadataKey: "group",
            ledger.ConsumerGroupPartitionMetadataKey: "partition metadata",
            ledger.ConsumerGroupRegularExpressionKey: "pattern",
        }
        name = getattr(key, "member_id", getattr(key, "regular_expression", ""))
        message = "gone" if value is None else self._value(value)
        return " ".join(word for word in (kinds[type(key)], name, message) if word)

    def _value(self, value: Entry) -> str:
        match value:
            case ledger.ConsumerGroupMemberMetadataValue():
                wanted = [*value.subscribed_topic_names, *([value.subscribed_topic_regex or ""])]
                instance = f" as {value.instance_id}" if value.instance_id else ""
                return f"wants {' '.join(word for word in wanted if word) or 'nothing'}{instance}"
            case ledger.ConsumerGroupCurrentMemberAssignmentValue():
                phase = Phase(value.state).name.lower()
                place = f"epoch {value.previous_member_epoch}→{value.member_epoch} {phase}"
                has = self.show((t.topic_id, t.partitions) for t in value.assigned_partitions)
                gives = self.show((t.topic_id, t.partitions) for t in value.partitions_pending_revocation)
                return f"{place}, {has}" + (f", gives {gives}" if value.partitions_pending_revocation else "")
            case ledger.ConsumerGroupTargetAssignmentMemberValue():
                return self.show((topic.topic_id, topic.partitions) for topic in value.topic_partitions)
            case ledger.ConsumerGroupTargetAssignmentMetadataValue():
                return f"epoch {value.assignment_epoch}"
            case ledger.ConsumerGroupMetadataValue():
                return f"epoch {value.epoch}"
            case ledger.ConsumerGroupRegularExpressionValue():
                return f"means {' '.join(value.topics) or 'nothing'}"
            case _:
                return "written"

    def show(self, partitions: Iterable[tuple[bytes, Iterable[int]]]) -> str:
        """`orders:0-2,5`; a deleted topic is shown as `?`."""
        topics = self.groups.topics
        shown = []
        for topic_id, numbers in partitions:
            topic = topics.by_id(topic_id)
            shown.append(f"{'?' if topic is None else topic.name}:{','.join(_runs(sorted(numbers)))}")
        return " ".join(sorted(shown)) or "nothing"

    def read(self, text: str) -> Partitions:
        """The inverse of `show`."""
        found: Partitions = set()
        for name, _, numbers in (word.partition(":") for word in text.split(";") if word):
            topic = self.groups.topics.by_name(name)
            assert topic is not None
            for run in numbers.split(","):
                first, _, last = run.partition("-")
                found |= {(topic.id, number) for number in range(int(first), int(last or first) + 1)}
        return found


def _runs(numbers: list[int]) -> list[str]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


def _joins(world: ConsumerWorld, line: Line) -> None:
    options = line.options
    consumer = world.consumers[line.who] = Consumer(world.groups, line.who, instance_id=options.get("instance"))
    message: dict[str, Any] = {
        "rebalance_timeout_ms": line.number("timeout", REBALANCE_TIMEOUT_MS),
        "topic_partitions": [],
        "instance_id": consumer.instance_id,
        "server_assignor": options.get("assignor"),
        "subscribed_topic_regex": options.get("pattern"),
    }
    if "pattern" not in options or "topics" in options:
        message["subscribed_topic_names"] = [name for name in options.get("topics", "").split(",") if name]
    world.ask(line.who, 0, message)


def _beats(world: ConsumerWorld, line: Line) -> None:
    consumer = world.consumer(line.who)
    message: dict[str, Any] = {"instance_id": consumer.instance_id}
    if "owning" in line.options:
        message["topic_partitions"] = as_reported(world.read(line.options["owning"]))
    elif "silently" not in line.words:
        message["topic_partitions"] = as_reported(consumer.has)
    if "topics" in line.options:
        message["subscribed_topic_names"] = [name for name in line.options["topics"].split(",") if name]
    if "pattern" in line.options:
        message["subscribed_topic_regex"] = line.options["pattern"]
    world.ask(line.who, line.number("epoch", consumer.epoch), message)


def _obeys(world: ConsumerWorld, line: Line) -> None:
    world.consumer(line.who).obey()


def _leaves(world: ConsumerWorld, line: Line) -> None:
    consumer = world.consumer(line.who)
    epoch = -2 if "for-a-while" in line.words else -1
    world.ask(line.who, epoch, {"instance_id": line.options.get("instance", consumer.instance_id)})


def _commits(world: ConsumerWorld, line: Line) -> None:
    name, _, number = line.words[0].rpartition("-")
    topic = world.groups.topics.by_name(name)
    assert topic is not None
    try:
        check = world.groups.group.validate_offset_commit(
            line.who if line.who in world.consumers else "",
            line.number("epoch", world.consumers[line.who].epoch if line.who in world.consumers else -1),
            None,
            is_transactional=False,
            version=line.number("version", OFFSETS_WITH_EPOCHS),
        )
        if check is not None:
            check(name, topic.id, int(number))
    except KafkaError as error:
        world.notes.append(f"{line.who}: {error.name}")
    else:
        world.notes.append(f"{line.who}: committed")


def _topic(world: ConsumerWorld, line: Line) -> None:
    name, partitions = line.words
    if int(partitions):
        world.groups.topics.add(name, int(partitions))
    else:
        world.groups.topics.remove(name)


def _time(world: ConsumerWorld, line: Line) -> None:
    world.groups.pass_time(int(line.words[0]))
    world.groups.at_work.failure = None


def _crash(world: ConsumerWorld, line: Line) -> None:
    world.groups.at_work.crash()


def _fail(world: ConsumerWorld, line: Line) -> None:
    """The next step cannot write."""
    world.groups.at_work.failure = CoordinatorNotAvailable()


def _settings(world: ConsumerWorld, line: Line) -> None:
    changes: dict[str, Any] = {key: int(value) for key, value in line.options.items()}
    world.groups.settings = replace(world.groups.settings, **changes)


def _describe(world: ConsumerWorld, line: Line) -> None:
    if GROUP not in world.groups.at_work.coordinator.groups:
        world.notes.append("there is no group")
        return
    result = world.groups.group.describe()
    epochs = f"epoch {result.group_epoch}, target {result.assignment_epoch}"
    world.notes.append(f"{result.group_state}, {epochs}, {result.assignor_name}")
    for member in result.members:
        has: dict[bytes, list[int]] = defaultdict(list)
        for topic in member.assignment.topic_partitions:
            has[topic.topic_id] += topic.partitions
        world.notes.append(f"{member.member_id} in {member.member_epoch}: {world.show(has.items())}")


def _delete(world: ConsumerWorld, line: Line) -> None:
    world.groups.at_work.ask(lambda coordinator, request_id, now: coordinator.delete_group(request_id, GROUP, now))
    result = world.groups.at_work.delivered.pop().response
    world.notes.append(result.name if isinstance(result, KafkaError) else "deleted")


STEPS: Steps[ConsumerWorld] = {
    "joins": _joins,
    "beats": _beats,
    "obeys": _obeys,
    "leaves": _leaves,
    "commits": _commits,
    "topic": _topic,
    "time": _time,
    "crash": _crash,
    "fail": _fail,
    "settings": _settings,
    "describe": _describe,
    "delete": _delete,
}
