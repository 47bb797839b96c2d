"""Who may do what, asked of a whole broker: every API is refused to whom no rule allows it, and what a rule allows is
done. tests/cluster/test_acls.py tests the meaning of rules."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.requests_by_api import GROUP, TOPIC, TRANSACTION, request_for, versions
from support.serving import ClientConnection, ask, new_broker, on_trio, running_broker

from trioka.broker.api import SUPPORTED_APIS
from trioka.broker.broker import Broker
from trioka.broker.config.layers import ConfigError
from trioka.broker.security.authorized_operations import TOPIC_OPERATIONS, bits
from trioka.cluster.acls import AclFilter, AclOperation, AclResourceType
from trioka.protocol.batch import build
from trioka.protocol.errors import (
    ClusterAuthorizationFailed,
    DelegationTokenRequestNotAllowed,
    GroupAuthorizationFailed,
    SecurityDisabled,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.protocol.schema import Struct

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NOT_ASKED = -0x80000000
LIST_GROUPS, API_VERSIONS, DESCRIBE_LOG_DIRS, DESCRIBE_CLUSTER, LIST_TRANSACTIONS = 16, 18, 35, 60, 66
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36  # refused for another reason: the listener has no logins
# These are answered to everybody, with what the asker may know: the brokers, and of the rest nothing.
OPEN = {API_VERSIONS, DESCRIBE_CLUSTER, LIST_GROUPS, LIST_TRANSACTIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE}
# There is no place for an error in them, so that they tell of nothing.
SILENT = {(DESCRIBE_LOG_DIRS, 1), (DESCRIBE_LOG_DIRS, 2)}
ABOUT_TOKENS = range(38, 42)
NO_TOKENS_IN_PLAINTEXT = DelegationTokenRequestNotAllowed.code
REFUSED = {
    each.code
    for each in (
        TopicAuthorizationFailed,
        GroupAuthorizationFailed,
        ClusterAuthorizationFailed,
        TransactionalIdAuthorizationFailed,
    )
}


@asynccontextmanager
async def guarded_broker(directory: Path | str, **settings: str) -> AsyncIterator[Broker]:
    """One with an authorizer, and with a topic."""
    async with running_broker(directory, None, authorizer_class_name=STANDARD, **settings) as broker:
        await broker.create_missing_topics({TOPIC: 1})
        yield broker


def rule(
    operation: AclOperation,
    kind: AclResourceType = AclResourceType.CLUSTER,
    name: str = "kafka-cluster",
    *,
    permission: int = 3,
    host: str = "*",
) -> CreateAclsRequest.Creation:
    return CreateAclsRequest.Creation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission_type=permission,
    )


async def grant(broker: Broker, *rules: CreateAclsRequest.Creation) -> None:
    """By the controller itself, past the guard."""
    decision = await broker.quorum.change(lambda controller: controller.create_acls(rules))
    assert all(outcome.error is None for outcome in decision.replies)


async def revoke_all(broker: Broker) -> None:
    await broker.quorum.change(lambda controller: controller.delete_acls([AclFilter()]))


def verdicts(answer: Struct) -> list[int]:
    """The error codes of an answer. One that stands for the whole counts if there is none for its parts."""
    nested = [
        code
        for field in answer.__fields__
        if isinstance(parts := getattr(answer, field.name), list)
        for part in parts
        if isinstance(part, Struct)
        for code in verdicts(part)
    ]
    own = getattr(answer, "error_code", None)
    own = getattr(answer, "partition_error_code", own)
    return nested or ([] if own is None else [own])


def topic_ids(broker: Broker) -> Any:
    def find(name: str) -> bytes:
        topic = broker.metadata.topics.by_name(name)
        assert topic is not None
        return topic.topic_id

    return find


@on_trio
async def test_whom_no_rule_allows_anything_is_refused_everything(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        before = broker.metadata.offset
        for key, version in versions():
            if key in OPEN:
                continue
            answer = await ask(broker, request_for(key, version, topic_ids(broker)), version)
            assert answer is not None, SUPPORTED_APIS[key]
            if (key, version) in SILENT:
                assert answer.results == []
                continue
            codes = verdicts(answer)
            expected = {NO_TOKENS_IN_PLAINTEXT} if key in ABOUT_TOKENS else REFUSED
            assert codes and set(codes) <= expected, f"{SUPPORTED_APIS[key].name} v{version}: {answer}"
        assert broker.metadata.offset == before
        assert broker.partitions.get(TOPIC, 0).log.log_end_offset == 0


@on_trio
async def test_without_an_authorizer_everything_is_allowed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for key, version in dict(versions()).items():  # in the last version of each
            await broker.create_missing_topics({TOPIC: 1})
            answer = await ask(broker, request_for(key, version, topic_ids(broker)), version)
            assert not REFUSED & set(verdicts(answer)), f"{SUPPORTED_APIS[key].name} v{version}: {answer}"


@on_trio
async def test_common_fields_are_left_out(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        everything = MetadataRequest(
            topics=None, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
        )
        response = await ask(broker, everything, 10)
        assert response.topics == [] and response.cluster_authorized_operations == 0 and len(response.brokers) == 1
        assert (await ask(broker, ListGroupsRequest(), 5)).groups == []
        await grant(broker, rule(AclOperation.WRITE, AclResourceType.TOPIC, TOPIC), rule(AclOperation.ALTER))
        response = await ask(broker, everything, 10)
        assert [topic.name for topic in response.topics] == [TOPIC]
        assert response.topics[0].topic_authorized_operations == bits([AclOperation.WRITE, AclOperation.DESCRIBE])
        assert response.cluster_authorized_operations == bits([AclOperation.ALTER, AclOperation.DESCRIBE])


@on_trio
async def test_a_topic_that_is_hidden_looks_like_one_that_is_not_there(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        for version in range(14):
            topics = [MetadataRequest.Topic(name=name) for name in (TOPIC, "nowhere")]
            hidden, absent = (await ask(broker, MetadataRequest(topics=topics), version)).topics
            hidden.name = absent.name
            assert hidden == absent and hidden.error_code == TopicAuthorizationFailed.code
        assert broker.metadata.topics.by_name("nowhere") is None


@on_trio
async def test_a_super_user_may_do_everything(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path, super_users="User:root; User:ANONYMOUS") as broker:
        await grant(broker, rule(AclOperation.ALL, AclResourceType.TOPIC, "*", permission=2))
        requested = MetadataRequest(
            topics=[MetadataRequest.Topic(name=TOPIC)], include_topic_authorized_operations=True
        )
        (result,) = (await ask(broker, requested, 12)).topics
        assert result.error_code == 0 and result.topic_authorized_operations == bits(TOPIC_OPERATIONS)


@on_trio
async def test_a_rule_for_another_host_does_not_count(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        await grant(broker, rule(AclOperation.DESCRIBE, host="10.0.0.7"))
        assert verdicts(await ask(broker, request_for(29, 3, topic_ids(broker)), 3)) == [
            ClusterAuthorizationFailed.code
        ]
        await grant(broker, rule(AclOperation.DESCRIBE, host="127.0.0.1"))
        assert verdicts(await ask(broker, request_for(29, 3, topic_ids(broker)), 3)) == [0]


@on_trio
async def test_the_brokers_own_topics_are_in_no_clients_transaction(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        requested: Any = request_for(24, 3, topic_ids(broker))
        requested.v3_and_below_topics[0].name = "__consumer_offsets"
        assert verdicts(await ask(broker, requested, 3)) == [TopicAuthorizationFailed.code]


# Rules are kept.


@on_trio
async def test_rules_are_there_after_a_new_start(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path, super_users="User:ANONYMOUS") as broker:
        assert verdicts(await ask(broker, request_for(30, 3, topic_ids(broker)), 3)) == [0]
    async with guarded_broker(tmp_path, super_users="User:ANONYMOUS") as broker:
        (result,) = (await ask(broker, request_for(29, 3, topic_ids(broker)), 3)).resources
        assert (result.resource_name, result.acls[0].principal) == (TOPIC, "User:eve")
        (deleted,) = (await ask(broker, request_for(31, 3, topic_ids(broker)), 3)).filter_results
        assert [each.principal for each in deleted.matching_acls] == ["User:eve"]
        assert (await ask(broker, request_for(29, 3, topic_ids(broker)), 3)).resources == []


@on_trio
async def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for key in (29, 30, 31):
            assert verdicts(await ask(broker, request_for(key, 3, topic_ids(broker)), 3)) == [SecurityDisabled.code]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}, "authorizer.class.name"),
        ({"authorizer_class_name": STANDARD, "super_users": "User:ann;bob"}, "super.users"),
        ({"authorizer_class_name": STANDARD, "allow_everyone_if_no_acl_found": "si"}, "allow.everyone.if.no.acl.found"),
    ],
)
def test_invalid_authorizer_settings_are_refused(tmp_path: Path, settings: dict[str, str], word: str) -> None:
    with pytest.raises(ConfigError, match=f"{word}.* must be .*[.]$"):
        new_broker(tmp_path, None, **settings)


# The fast paths lead past the handlers, and so past the guard.


def producing(name: str = TOPIC, transaction: str | None = None, acks: int = 1, **more: Any) -> ProduceRequest:
    records = bytearray(build([Record(0, 0, None, b"x")], **more))
    partition = ProduceRequest.Topic.Partition(index=0, records=records)
    topic = ProduceRequest.Topic(name=name, partition_data=[partition])
    return ProduceRequest(transactional_id=transaction, acks=acks, timeout_ms=1000, topic_data=[topic])


def fetching(name: str = TOPIC) -> FetchRequest:
    requested = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(topic=name, partitions=[requested])])


@on_trio
async def test_a_right_that_is_taken_away_is_gone_with_the_next_request(tmp_path: Path) -> None:
    async with (
        guarded_broker(tmp_path) as broker,
        ClientConnection(broker) as writer,
        ClientConnection(broker) as reader,
    ):
        allowing = [rule(each, AclResourceType.TOPIC, TOPIC) for each in (AclOperation.READ, AclOperation.WRITE)]
        for _ in range(2):
            await grant(broker, *allowing)
            for _ in range(4):  # the third of a kind would be in a fast path
                assert verdicts(await writer.ask(producing(), 9)) == [0]
                assert verdicts(await reader.ask(fetching(), 12)) == [0]
            await revoke_all(broker)
            assert verdicts(await writer.ask(producing(), 9)) == [TopicAuthorizationFailed.code]
            assert verdicts(await reader.ask(fetching(), 12)) == [TopicAuthorizationFailed.code]
        assert broker.partitions.get(TOPIC, 0).log.log_end_offset == 8


@on_trio
async def test_what_may_be_written_is_and_the_rest_is_not(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({"mine": 1})
        await grant(broker, rule(AclOperation.ALL, AclResourceType.TOPIC, "mine"))
        both, reading = producing(), fetching()
        both.topic_data.extend(producing("mine").topic_data)
        reading.topics.extend(fetching("mine").topics)
        for _ in range(3):
            answer = await client.ask(both, 9)
            codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
            assert codes == {TOPIC: TopicAuthorizationFailed.code, "mine": 0}
            answer = await client.ask(reading, 12)
            codes = {topic.topic: topic.partitions[0].error_code for topic in answer.responses}
            assert codes == {TOPIC: TopicAuthorizationFailed.code, "mine": 0}
        assert broker.partitions.get("mine", 0).log.log_end_offset == 3


@on_trio
async def test_a_failed_request_without_a_response_closes_the_connection(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        assert await ask(broker, producing(acks=0), 9) is None
        transactional = producing(transaction=TRANSACTION, acks=0, producer_id=1, producer_epoch=0, transactional=True)
        assert await ask(broker, transactional, 9) is None


@on_trio
async def test_records_of_a_transaction_need_the_right_to_its_id(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        await grant(broker, rule(AclOperation.ALL, AclResourceType.TOPIC, TOPIC))
        for name in (TRANSACTION, None):  # nor does it help to name none
            requested = producing(
                transaction=name, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
            )
            assert verdicts(await ask(broker, requested, 9)) == [TransactionalIdAuthorizationFailed.code]


@on_trio
async def test_a_client_that_says_it_is_a_broker_reads_nothing(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        await grant(broker, rule(AclOperation.READ, AclResourceType.TOPIC, TOPIC))
        requested = fetching()
        requested.replica_id = 2  # type: ignore[misc]
        assert verdicts(await ask(broker, requested, 12)) == [TopicAuthorizationFailed.code]


@on_trio
async def test_a_new_topics_configuration_needs_the_permission_to_describe_it(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        await grant(
            broker,
            rule(AclOperation.CREATE, AclResourceType.TOPIC, "a"),
            rule(AclOperation.CREATE, AclResourceType.GROUP, GROUP),
        )
        topics = [
            CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in ("a", "b")
        ]
        made, denied = (await ask(broker, CreateTopicsRequest(topics=topics), 7)).topics
        assert (made.error_code, made.topic_config_error_code) == (0, TopicAuthorizationFailed.code)
        assert not made.configs and denied.error_code == TopicAuthorizationFailed.code
        assert broker.metadata.topics.by_name("b") is None


# What was decided is written down.


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, "trioka.authorizer"):
        yield caplog


def test_denials_are_written_down_at_info_and_permissions_at_debug(
    tmp_path: Path, audit: pytest.LogCaptureFixture
) -> None:
    @on_trio
    async def asking() -> None:
        async with guarded_broker(tmp_path) as broker:
            await ask(broker, request_for(29, 3, topic_ids(broker)), 3)
            await grant(broker, rule(AclOperation.DESCRIBE))
            await ask(broker, request_for(29, 3, topic_ids(broker)), 3)
            await ask(broker, MetadataRequest(topics=None), 12)  # looks through what is there: no attempt

    asking()
    lines = [(each.levelname, each.getMessage()) for each in audit.records if each.name == "trioka.authorizer"]
    what = "User:ANONYMOUS from 127.0.0.1, DESCRIBE on CLUSTER kafka-cluster by describe_acls"
    rule_text = "ALLOW User:ANONYMOUS DESCRIBE from * on CLUSTER:LITERAL:kafka-cluster"
    assert lines == [("INFO", f"denied: {what}: no rule allows it"), ("DEBUG", f"allowed: {what}: {rule_text}")]


def test_a_name_cannot_forge_a_line(tmp_path: Path, audit: pytest.LogCaptureFixture) -> None:
    @on_trio
    async def asking() -> None:
        async with guarded_broker(tmp_path) as broker:
            forged = "x\nallowed: User:ANONYMOUS " + "y" * 2000
            await ask(broker, MetadataRequest(topics=[MetadataRequest.Topic(name=forged)]), 12)

    asking()
    (line,) = [each.getMessage() for each in audit.records if each.name == "trioka.authorizer"]
    assert "\n" not in line and len(line) < 1000 and line.startswith("denied: ")
