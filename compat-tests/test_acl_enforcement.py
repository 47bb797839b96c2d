"""What Apache Kafka refuses to whom, and what it hides, trioka refuses and hides too: every API in every version, asked
by somebody from an address that no rule is for, and again with just the rights that the API needs.

Whoever comes from 127.0.0.1 may do everything. Everything is about things that exist, unless a test says otherwise.
"""

import time
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from guests import GUEST, Guests
from side_by_side import PATIENCE_S, POLL_S, Order, RequestFor, Side, SideBySide, side_by_side
from support.requests_by_api import GROUP, TOPIC, TRANSACTION, request_for, versions

from trioka.broker.api import SUPPORTED_APIS
from trioka.cluster.image.acls import AclOperation, AclResourceType
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_acls import DeleteAclsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.describe_acls import DescribeAclsRequest
from trioka.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.schema import Struct

pytestmark = pytest.mark.usefixtures("apache_kafka")

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
HOST = "127.0.0.1"
DENIED = {29, 30, 31, 53}
COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS = 14, 51
API_VERSIONS = 18
CLUSTER = (AclResourceType.CLUSTER, "kafka-cluster")
ORDERS, BILLING, COPIER = (
    (AclResourceType.TOPIC, TOPIC),
    (AclResourceType.GROUP, GROUP),
    (AclResourceType.TRANSACTIONAL_ID, TRANSACTION),
)
MINE, NEW = (AclResourceType.TOPIC, "mine"), (AclResourceType.TOPIC, "new")
BILLING_TOO = (AclResourceType.GROUP, "billing too")
NEW_KIND = (AclResourceType.GROUP, "the new kind")

OF_ACL = ("principal", "host", "operation", "permission_type")

Right = tuple[AclOperation, tuple[AclResourceType, str]]
RuleTuple = tuple[Any, ...]  # a rule as a value


def rule(
    operation: AclOperation, resource: tuple[AclResourceType, str], host: str = GUEST
) -> CreateAclsRequest.Creation:
    kind, name = resource
    return CreateAclsRequest.Creation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission_type=3,
    )


def of_host(host: str) -> dict[str, Any]:
    """A filter for all that is allowed to whoever comes from there."""
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": host,
        "operation": 1,
        "permission_type": 1,
    }


@dataclass(frozen=True, slots=True)
class House:
    hosts: SideBySide
    guests: Guests

    @property
    def both(self) -> tuple[Side, Side]:
        return self.hosts.kafka, self.hosts.trioka

    def allow(self, *rights: Right) -> None:
        """To the guests; what they had before they have no more."""
        wanted = [rule(operation, resource) for operation, resource in rights]
        for side in self.both:
            side.ask(DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**of_host(GUEST))]), 3)
            created = side.ask(CreateAclsRequest(creations=wanted), 3)
            assert all(result.error_code == 0 for result in created.results), created
            wait(side, lambda side: rules_of(side, GUEST) == set(map(said, wanted)))


def rules_of(side: Side, host: str) -> set[RuleTuple]:
    """What the broker knows: the controller of Apache Kafka answers before."""
    found = side.ask(DescribeAclsRequest(**of_host(host)), 3).resources
    return {
        (reply.resource_type, reply.resource_name, reply.pattern_type, *(getattr(acl, each) for each in OF_ACL))
        for reply in found
        for acl in reply.acls
    }


def said(creation: CreateAclsRequest.Creation) -> RuleTuple:
    resource = (creation.resource_type, creation.resource_name, creation.resource_pattern_type)
    return (*resource, *(getattr(creation, each) for each in OF_ACL))


def wait(side: Side, until: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until(side):
        assert time.monotonic() < deadline, side.name
        time.sleep(POLL_S)


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with side_by_side(authorizer_class_name=STANDARD, allow_everyone_if_no_acl_found="true") as hosts:
        hosts.create_topic(TOPIC)
        for side in (hosts.kafka, hosts.trioka):
            for kind, name in enumerate((GROUP, TRANSACTION)):  # what remembers them is there
                query = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
                wait(side, lambda side, query=query: side.ask(query, 6).coordinators[0].error_code == 0)
            wait(side, lambda side: codes(side.ask(request_for(8, 9, side.topic_id), 9)) == [0])
            everything = [(kind, "*") for kind in (ORDERS[0], BILLING[0], COPIER[0])]
            for resource in (CLUSTER, *everything):
                side.ask(CreateAclsRequest(creations=[rule(AclOperation.ALL, resource, HOST)]), 3)
            wait(side, lambda side: len(rules_of(side, HOST)) == 4)
        guests = Guests(hosts)
        try:
            yield House(hosts, guests)
        finally:
            guests.close()


def codes(answer: Struct) -> list[int]:
    """All error codes of an answer."""
    found = []
    for field in answer.__fields__:
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            found.append(value)
        elif isinstance(value, list):
            found += [code for part in value if isinstance(part, Struct) for code in codes(part)]
    return found


def is_denied(answer: Struct) -> bool:
    return bool(DENIED & set(codes(answer)))


def is_granted(answer: Struct) -> bool:
    """And not put off: Apache Kafka's coordinators take their time."""
    return not {*DENIED, COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS} & set(codes(answer))


def by_all(reply: Any) -> str:
    return repr(sorted(reply.items()))


def test_without_rights_both_refuse_the_same(house: House) -> None:
    house.allow()
    # The controller and the broker of Apache Kafka hear of rules one after the other.
    for key in (30, 29):
        house.guests.agree(request_for(key, 3, house.hosts.kafka.topic_id), 3, until=is_denied)
    differences = []
    for key, version in versions():
        if key == API_VERSIONS:
            continue
        try:
            house.guests.same(lambda side, key=key, version=version: request_for(key, version, side.topic_id), version)  # type: ignore[misc]
        except AssertionError as difference:
            differences.append(str(difference))
    assert not differences, "\n".join(differences)


# What each API needs, in its last version.
NEEDED: Mapping[int, tuple[Right, ...]] = {
    0: ((AclOperation.WRITE, ORDERS),),
    1: ((AclOperation.READ, ORDERS),),
    2: ((AclOperation.DESCRIBE, ORDERS),),
    3: ((AclOperation.DESCRIBE, ORDERS),),
    8: ((AclOperation.READ, BILLING), (AclOperation.READ, ORDERS)),
    9: ((AclOperation.DESCRIBE, BILLING), (AclOperation.DESCRIBE, ORDERS)),
    10: ((AclOperation.DESCRIBE, BILLING),),
    11: ((AclOperation.READ, BILLING),),
    12: ((AclOperation.READ, BILLING),),
    13: ((AclOperation.READ, BILLING),),
    14: ((AclOperation.READ, BILLING),),
    15: ((AclOperation.DESCRIBE, BILLING),),
    16: ((AclOperation.DESCRIBE, BILLING),),
    17: (),  # on a listener without SASL
    21: ((AclOperation.DELETE, ORDERS),),
    22: ((AclOperation.IDEMPOTENT_WRITE, CLUSTER),),
    23: ((AclOperation.DESCRIBE, ORDERS),),
    24: ((AclOperation.CLUSTER_ACTION, CLUSTER),),
    25: ((AclOperation.WRITE, COPIER), (AclOperation.READ, BILLING)),
    26: ((AclOperation.WRITE, COPIER),),
    27: ((AclOperation.CLUSTER_ACTION, CLUSTER),),
    28: ((AclOperation.WRITE, COPIER), (AclOperation.READ, BILLING), (AclOperation.READ, ORDERS)),
    29: ((AclOperation.DESCRIBE, CLUSTER),),
    30: ((AclOperation.ALTER, CLUSTER),),
    31: ((AclOperation.ALTER, CLUSTER),),
    32: ((AclOperation.DESCRIBE_CONFIGS, CLUSTER), (AclOperation.DESCRIBE_CONFIGS, ORDERS)),
    33: ((AclOperation.ALTER_CONFIGS, ORDERS),),
    34: ((AclOperation.ALTER, CLUSTER),),
    35: ((AclOperation.DESCRIBE, CLUSTER),),
    36: (),
    37: ((AclOperation.ALTER, ORDERS),),
    38: (),  # over PLAINTEXT, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED whatever the client may do
    39: (),
    40: (),
    41: (),
    42: ((AclOperation.DELETE, BILLING),),
    43: ((AclOperation.ALTER, CLUSTER),),
    44: ((AclOperation.ALTER_CONFIGS, CLUSTER), (AclOperation.ALTER_CONFIGS, ORDERS)),
    45: ((AclOperation.ALTER, CLUSTER),),
    46: ((AclOperation.DESCRIBE, CLUSTER),),
    47: ((AclOperation.DELETE, BILLING), (AclOperation.READ, ORDERS)),
    48: ((AclOperation.DESCRIBE_CONFIGS, CLUSTER),),
    49: ((AclOperation.ALTER_CONFIGS, CLUSTER),),
    50: ((AclOperation.DESCRIBE, CLUSTER),),
    51: ((AclOperation.ALTER, CLUSTER),),
    55: ((AclOperation.DESCRIBE, CLUSTER),),
    57: ((AclOperation.ALTER, CLUSTER),),
    60: ((AclOperation.DESCRIBE, CLUSTER),),
    61: ((AclOperation.READ, ORDERS),),
    64: ((AclOperation.ALTER, CLUSTER),),
    65: ((AclOperation.DESCRIBE, COPIER),),
    66: ((AclOperation.DESCRIBE, COPIER),),
    68: ((AclOperation.READ, NEW_KIND), (AclOperation.DESCRIBE, ORDERS)),
    69: ((AclOperation.DESCRIBE, BILLING),),
    74: ((AclOperation.DESCRIBE_CONFIGS, CLUSTER),),
    75: ((AclOperation.DESCRIBE, ORDERS),),
}
# What differs, with or without rights, and is looked at elsewhere; and lists whose order means nothing.
IGNORED: Mapping[int, tuple[str, ...]] = {
    1: ("responses.partitions.records",),
    22: ("producer_id",),
    35: ("results",),
    55: ("topics", "nodes"),
    61: ("topics.partitions.active_producers.last_timestamp",),
}
ORDERS_OF: Mapping[int, Order] = {
    29: {"resources": by_all, "resources.acls": by_all},
    74: {"config_resources": by_all},
}


def test_with_the_right_that_it_needs_each_is_granted_by_both(house: House) -> None:
    last = dict(versions())
    # Of the topics' two, below. Voters come and go only where they stand in the log, and here they do on one side only.
    assert set(last) - set(NEEDED) == {API_VERSIONS, 19, 20, 80, 81}
    differences = []
    for key, rights in NEEDED.items():
        house.allow(*rights)
        try:
            house.guests.agree(
                lambda side, key=key: request_for(key, last[key], side.topic_id),  # type: ignore[misc]
                last[key],
                until=is_granted,
                ignoring=IGNORED.get(key, ()),
                order=ORDERS_OF.get(key),
            )
        except AssertionError as difference:
            differences.append(f"{SUPPORTED_APIS[key].name}: {difference}")
    assert not differences, "\n".join(differences)


# Parts of a request that are allowed, and parts that are not.


def also(request: Any, field: str, name_field: str, name: str) -> Any:
    """The request, for a second topic too."""
    topics = getattr(request, field)
    second = deepcopy(topics[0])
    setattr(second, name_field, name)
    topics.append(second)
    return request


def two_topics(key: int, version: int, field: str, name_field: str = "name") -> RequestFor:
    return lambda side: also(request_for(key, version, side.topic_id), field, name_field, "mine")


MIXED: list[tuple[int, int, str, str, tuple[Right, ...]]] = [
    (0, 12, "topic_data", "name", ((AclOperation.WRITE, MINE),)),
    (1, 12, "topics", "topic", ((AclOperation.READ, MINE),)),
    (2, 11, "topics", "name", ((AclOperation.DESCRIBE, MINE),)),
    (8, 9, "topics", "name", ((AclOperation.READ, BILLING), (AclOperation.READ, MINE))),
    (9, 7, "topics", "name", ((AclOperation.DESCRIBE, BILLING), (AclOperation.DESCRIBE, MINE))),
    (21, 2, "topics", "name", ((AclOperation.DELETE, MINE),)),
    (23, 4, "topics", "topic", ((AclOperation.DESCRIBE, MINE),)),
    (24, 3, "v3_and_below_topics", "name", ((AclOperation.WRITE, COPIER), (AclOperation.WRITE, MINE))),
    (28, 3, "topics", "name", ((AclOperation.WRITE, COPIER), (AclOperation.READ, BILLING), (AclOperation.READ, MINE))),
    (37, 3, "topics", "name", ((AclOperation.ALTER, MINE),)),
    (47, 0, "topics", "name", ((AclOperation.DELETE, BILLING), (AclOperation.READ, MINE))),
    (61, 0, "topics", "name", ((AclOperation.READ, MINE),)),
    (75, 0, "topics", "name", ((AclOperation.DESCRIBE, MINE),)),
]
NAMED = ("name", "topic")


def by_name(reply: Any) -> str:
    return next(str(reply[field]) for field in NAMED if field in reply)


def test_of_two_topics_the_one_that_is_allowed_is_served(house: House) -> None:
    house.hosts.create_topic("mine")
    differences = []
    for key, version, field, name_field, rights in MIXED:
        house.allow(*rights)
        order = dict.fromkeys(("topics", "responses", "results", "results_by_topic_v3_and_below"), by_name)
        ignoring = ("responses.partitions.records", "topics.partitions.active_producers.last_timestamp")
        try:
            reply = house.guests.agree(
                two_topics(key, version, field, name_field),
                version,
                until=lambda answer: len(set(codes(answer))) > 1,
                ignoring=ignoring,
                order=order,
            )
            assert is_denied(reply)
        except AssertionError as difference:
            differences.append(f"{SUPPORTED_APIS[key].name}: {difference}")
    assert not differences, "\n".join(differences)


def metadata(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.Topic(name=name) for name in names],
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=True,
    )


BY_NAME: Order = {"topics": lambda reply: str(reply["name"])}


def test_topics_are_hidden_by_name_and_by_id(house: House) -> None:
    house.allow((AclOperation.DESCRIBE, MINE))
    house.guests.agree(metadata("mine"), 12, until=is_granted)
    house.guests.same(metadata(TOPIC, "mine", "nowhere"), 12, order=BY_NAME)
    house.guests.same(MetadataRequest(topics=None, include_topic_authorized_operations=True), 12)
    house.guests.same(MetadataRequest(topics=[]), 0)
    house.guests.same(DescribeTopicPartitionsRequest(topics=[]), 0)

    def by_id(side: Side) -> MetadataRequest:
        ids = [side.topic_id(TOPIC), side.topic_id("mine"), b"\1" * 16]
        return MetadataRequest(topics=[MetadataRequest.Topic(name=None, topic_id=each) for each in ids])

    house.guests.same(by_id, 12, order={"topics": lambda reply: str(reply["topic_id"])})
    everything = OffsetFetchRequest(group_id=GROUP, topics=None)
    house.allow((AclOperation.DESCRIBE, BILLING))
    house.guests.agree(everything, 7, until=is_granted)


def test_who_may_describe_but_not_create_makes_no_topic(house: House) -> None:
    house.allow((AclOperation.DESCRIBE, NEW))
    house.guests.agree(metadata("new"), 12, until=lambda answer: not is_denied(answer))
    house.guests.same(metadata("new", create=True), 12)
    house.allow((AclOperation.DESCRIBE, NEW), (AclOperation.CREATE, NEW))
    deadline = time.monotonic() + PATIENCE_S
    for side in (house.guests.kafka, house.guests.trioka):
        while side.ask(metadata("new", create=True), 12).topics[0].error_code:
            assert time.monotonic() < deadline, side.name
            time.sleep(POLL_S)


def creation(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in names
        ],
        validate_only=True,
    )


def test_topics_are_made_with_rights_to_them_or_to_the_cluster(house: House) -> None:
    one, configs = (AclResourceType.TOPIC, "one"), ("topics.configs",)
    house.allow((AclOperation.CREATE, one))
    house.guests.agree(creation("one"), 7, until=is_denied_only_configs)
    for query in (creation("one"), creation("one", "two"), creation("two", "two"), creation(TOPIC)):
        house.guests.same(query, 7, ignoring=configs, order=BY_NAME)
    house.allow((AclOperation.CREATE, CLUSTER), (AclOperation.DESCRIBE_CONFIGS, one))
    house.guests.agree(creation("two"), 7, until=is_denied_only_configs)
    house.guests.same(creation("one", "two"), 7, ignoring=configs, order=BY_NAME)


def is_denied_only_configs(answer: Any) -> bool:
    return all((topic.error_code, topic.topic_config_error_code) == (0, 29) for topic in answer.topics)


def deletion(*names: str | None, ids: tuple[bytes, ...] = ()) -> DeleteTopicsRequest:
    topics = [DeleteTopicsRequest.Topic(name=name, topic_id=NULL_UUID) for name in names]
    topics += [DeleteTopicsRequest.Topic(name=None, topic_id=each) for each in ids]
    return DeleteTopicsRequest(topics=topics, timeout_ms=30_000)


def test_topics_are_deleted_with_rights_to_them(house: House) -> None:
    house.hosts.create_topic("gone")
    gone = (AclResourceType.TOPIC, "gone")
    order: Order = {"responses": lambda reply: (str(reply["name"]), str(reply["topic_id"]))}
    nowhere = (AclResourceType.TOPIC, "nowhere")
    for rights in ((), ((AclOperation.DESCRIBE, gone), (AclOperation.DESCRIBE, nowhere))):
        house.allow(*rights)
        for query in (
            deletion("gone", "nowhere"),
            lambda side: deletion("nowhere", ids=(side.topic_id("gone"), b"\1" * 16)),
        ):
            house.guests.agree(
                query,
                6,
                until=lambda answer, rights=rights: (3 in codes(answer)) is bool(rights) and is_denied(answer),  # type: ignore[misc]
                order=order,
            )
    house.allow((AclOperation.DELETE, gone))
    both = [
        side.ask(deletion("gone"), 6) for side in (house.guests.kafka, house.guests.trioka) if granted(side, "gone")
    ]
    assert [codes(answer) for answer in both] == [[0], [0]]


def granted(side: Side, name: str) -> bool:
    """Waits until a guest may do with a topic what it may be told of then."""
    wait(side, lambda side: side.ask(metadata(name), 12).topics[0].topic_authorized_operations != -0x80000000)
    return True


def test_producer_ids_are_for_those_who_may_write_something(house: House) -> None:
    for right in ((AclOperation.WRITE, MINE), (AclOperation.IDEMPOTENT_WRITE, CLUSTER), (AclOperation.WRITE, COPIER)):
        house.allow(right)
        for name in (None, TRANSACTION):
            query = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
            is_for_it = (name is None) is (right[1] is not COPIER)
            house.guests.agree(
                query,
                4,
                until=is_granted if is_for_it else is_denied,
                ignoring=("producer_id", "producer_epoch"),
            )


def test_coordinators_are_told_to_those_who_may_know_what_they_coordinate(house: House) -> None:
    house.allow((AclOperation.DESCRIBE, BILLING), (AclOperation.DESCRIBE, COPIER))
    for kind, name in ((0, GROUP), (1, TRANSACTION)):
        query = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name, "other"])
        house.guests.agree(query, 6, until=lambda answer: 0 in codes(answer))
        for version in (1, 3):
            house.guests.same(FindCoordinatorRequest(key_type=kind, key="other"), version)
    share = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAQ:0"])
    house.guests.same(share, 6)


def test_a_pattern_finds_only_topics_that_the_member_may_know_of(house: House) -> None:
    house.allow((AclOperation.READ, BILLING_TOO), (AclOperation.DESCRIBE, MINE))
    for side in (house.guests.kafka, house.guests.trioka):
        assert assigned(side, "mine|orders") == {"mine"}, side.name


def assigned(side: Side, pattern: str) -> set[str]:
    """The topics that a new member gets."""
    member = ConsumerGroupHeartbeatRequest(
        group_id=BILLING_TOO[1],
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response = side.ask(member, 1)
        if response.error_code == 0:
            got = [] if response.assignment is None else response.assignment.topic_partitions
            if got:
                return {name for name, topic_id in side.ids.items() for each in got if each.topic_id == topic_id}
            member = ConsumerGroupHeartbeatRequest(
                group_id=member.group_id, member_id=member.member_id, member_epoch=response.member_epoch
            )
        assert time.monotonic() < deadline, f"{side.name}: {response}"
        time.sleep(POLL_S)


# The rules themselves: what a guest may do with topics, after rules that chance made.

NAMES = ("orders", "order", "orderly", "mine", "m", "x")


def any_rule(random: Random) -> CreateAclsRequest.Creation:
    return CreateAclsRequest.Creation(
        resource_type=AclResourceType.TOPIC,
        resource_name=random.choice([*NAMES, "o", "ord", "*", "min"]),
        resource_pattern_type=random.choice((3, 4)),
        principal=random.choice(("User:ANONYMOUS", "User:ANONYMOUS", "User:*", "User:ann", "Group:ANONYMOUS")),
        host=random.choice((GUEST, GUEST, "10.0.0.7")),  # whoever is at home keeps its rights
        operation=random.choice([each for each in AclOperation if each is AclOperation.ALL or 3 <= each <= 11]),
        permission_type=random.choice((2, 3, 3)),
    )


@pytest.mark.parametrize("seed", range(6))
def test_from_the_same_rules_the_same_follows(house: House, seed: int) -> None:
    random = Random(seed)
    rules = {said(each): each for each in (any_rule(random) for _ in range(14))}
    for side in house.both:
        for host in (GUEST, "10.0.0.7"):
            side.ask(DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**of_host(host))]), 3)
        side.ask(CreateAclsRequest(creations=list(rules.values())), 3)
        wait(side, lambda side: rules_of(side, GUEST) | rules_of(side, "10.0.0.7") == rules.keys())
    reply = house.guests.same(metadata(*NAMES), 12, order=BY_NAME)[1]
    assert {topic.topic_authorized_operations for topic in reply.topics}
