"""The groups of a cluster, their states and their members.

Classic groups and KIP-848 groups have different describe requests, and the type of a group is not known beforehand. So
the KIP-848 request is sent first if the broker supports it, and the classic request if the first finds nothing.
"""

from functools import partial
from typing import Any, Final, NamedTuple

from trioka.protocol import errors
from trioka.protocol.errors import NONE, GroupIdNotFound
from trioka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest

from .. import problems
from ..terminal.failure import Failure, did_you_mean
from .classic_protocol import read_assignment
from .cluster_client import Kafka, TopicPartition

WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})


class Member(NamedTuple):
    member: str
    instance: str | None
    client: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupState(NamedTuple):
    group: str
    type: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[Member, ...]

    @property
    def is_active(self) -> bool:
        return self.state not in WITHOUT_MEMBERS

    def readers(self) -> dict[TopicPartition, Member]:
        return {place: member for member in self.members for place in member.partitions}


def all_groups(kafka: Kafka) -> list[dict[str, Any]]:
    """Every group of every broker, by name."""
    found = {}
    for broker in kafka.cluster().brokers:
        node = broker.node_id
        ask = partial(kafka.ask_node, node, ListGroupsRequest())
        answer = kafka.retry_while_stale(ask, lambda result: [result.error_code])
        if answer.error_code != NONE:
            raise problems.from_error_code(answer.error_code, f"broker {node} does not list its groups")
        for each in answer.groups:
            found[each.group_id] = {
                "group": each.group_id,
                "type": each.group_type or "classic",
                "state": each.group_state or None,
                "protocol": each.protocol_type,
                "coordinator": node,
            }
    return [found[name] for name in sorted(found)]


def find_group(kafka: Kafka, name: str) -> GroupState | None:
    """None if there is no such group."""
    if ConsumerGroupDescribeRequest.__key__ in kafka.first().versions():
        found = _new(kafka, name)
        if found is not None:
            return found
    request = DescribeGroupsRequest(groups=[name])
    (result,) = kafka.ask_coordinator(name, request, lambda result: [each.error_code for each in result.groups]).groups
    if result.error_code not in (NONE, GroupIdNotFound.code):
        raise problems.from_error_code(result.error_code, f"group '{name}' cannot be described")
    if result.error_code == GroupIdNotFound.code or result.group_state == "Dead":
        return _other(kafka, name)
    members = tuple(
        Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            _assigned(bytes(each.member_assignment)),
        )
        for each in result.members
    )
    return GroupState(name, "classic", result.group_state, result.protocol_data, kafka.coordinator(name), members)


def existing_group(kafka: Kafka, name: str) -> GroupState:
    """The group, or a failure with a suggestion if it does not exist."""
    found = find_group(kafka, name)
    if found is None:
        raise no_such_group(kafka, name)
    return found


def no_such_group(kafka: Kafka, name: str) -> Failure:
    known = [each["group"] for each in all_groups(kafka)]
    hints = [*did_you_mean(name, known), "see: trioka groups list"]
    return problems.not_found(errors.GroupIdNotFound, f"group '{name}' does not exist on {kafka.name}", hints)


def _new(kafka: Kafka, name: str) -> GroupState | None:
    request = ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    (result,) = kafka.ask_coordinator(name, request, lambda result: [each.error_code for each in result.groups]).groups
    if result.error_code != NONE:  # not of this type, or it does not exist: the classic request will tell
        return None
    members = tuple(
        Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in each.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for each in result.members
    )
    return GroupState(name, "consumer", result.group_state, result.assignor_name, kafka.coordinator(name), members)


def _other(kafka: Kafka, name: str) -> GroupState | None:
    """A share or streams group, which neither describe request finds but ListGroups lists."""
    for each in all_groups(kafka):
        if each["group"] == name and each["state"] != "Dead":
            return GroupState(name, each["type"], each["state"] or "", "", each["coordinator"], ())
    return None


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a consumer group's member; nothing for members of other kinds, such as Connect's."""
    try:
        return tuple(read_assignment(data))
    except Failure:
        return ()
