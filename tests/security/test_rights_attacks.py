"""Rights that are taken away while a client is at work, and clients that pose as nodes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from support.broker_cluster import on_cluster, running_cluster
from support.fetch_requests import request as fetch_in_session
from support.random_messages import sample
from support.replicated_topics import create, leader
from support.requests_by_api import REQUESTS, TOPIC
from support.sasl import PASSWORDS, SASL, SASL_SETTINGS, SaslClient
from support.serving import HOST, ClientConnection, ask, on_trio, running_broker
from support.transaction_requests import Refused, Writer

from trioka.broker.api import BROKER, CONTROLLER, SUPPORTED_APIS
from trioka.broker.broker import Broker
from trioka.cluster.image.acls import AclOperation, AclPermission, AclResourceType, PatternType
from trioka.protocol.messages import request_type
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.delete_acls import DeleteAclsRequest
from trioka.protocol.messages.end_txn import EndTxnRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.schema import Request

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS: dict[str, Any] = {**SASL_SETTINGS, "authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
TRANSACTION = "copier"
FETCH = 1
TOPIC_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED = 29, 31, 53
DECLARED_NODES = 20  # messages of each API of nodes


def rule(
    kind: AclResourceType, name: str, operation: AclOperation, permission: AclPermission = AclPermission.ALLOW
) -> CreateAclsRequest.Creation:
    return CreateAclsRequest.Creation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=operation,
        permission_type=permission,
    )


async def add_rules(broker: Broker, *rules: CreateAclsRequest.Creation) -> None:
    response = await ask(broker, CreateAclsRequest(creations=list(rules)), 3)
    assert [each.error_code for each in response.results] == [0] * len(rules)


async def remove_rules(broker: Broker, kind: AclResourceType) -> None:
    wanted = DeleteAclsRequest.Filter(
        resource_type_filter=kind,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="User:alice",
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    (result,) = (await ask(broker, DeleteAclsRequest(filters=[wanted]), 3)).filter_results
    assert result.error_code == 0 and result.matching_acls


@asynccontextmanager
async def guarded(directory: Path, *rules: CreateAclsRequest.Creation) -> AsyncIterator[tuple[Broker, SaslClient]]:
    """With alice, who has these rights."""
    async with running_broker(directory, **SETTINGS) as broker, SaslClient(broker) as client:
        await broker.create_missing_topics({TOPIC: 1})
        await add_rules(broker, *rules)
        assert (await client.log_in("PLAIN", "alice", PASSWORDS["alice"])).error_code == 0
        yield broker, client


async def produce(client: SaslClient) -> int:
    answer = await client.ask(REQUESTS[0](9, lambda _: bytes(16)), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


@on_trio
async def test_attack_51_a_right_that_is_taken_away_is_missing_at_the_next_request(tmp_path: Path) -> None:
    allowed = rule(AclResourceType.TOPIC, TOPIC, AclOperation.WRITE)
    async with guarded(tmp_path, allowed) as (broker, client):
        codes = [await produce(client) for _ in range(20)]
        (connection,) = (each for each in broker.network.connections if each.listener == SASL)
        assert codes == [0] * 20 and connection._fast_path is not None
        await add_rules(broker, rule(AclResourceType.TOPIC, TOPIC, AclOperation.WRITE, AclPermission.DENY))
        assert await produce(client) == TOPIC_DENIED


@on_trio
async def test_attack_51_a_fetch_session_does_not_keep_a_right(tmp_path: Path) -> None:
    async with guarded(tmp_path, rule(AclResourceType.TOPIC, TOPIC, AclOperation.READ)) as (broker, client):
        assert (await ask(broker, REQUESTS[0](9, lambda _: bytes(16)), 9)).responses
        first = await client.ask(fetch_in_session(0, 0, (TOPIC, 0)), 12)
        assert first.session_id and not first.error_code
        assert first.responses[0].partitions[0].records
        later = [await client.ask(fetch_in_session(first.session_id, epoch), 12) for epoch in range(1, 5)]
        assert not any(answer.error_code for answer in later)
        assert {part.error_code for answer in later for topic in answer.responses for part in topic.partitions} <= {0}
        await remove_rules(broker, AclResourceType.TOPIC)
        refused = await client.ask(fetch_in_session(first.session_id, 5), 12)
        (partition,) = refused.responses[0].partitions
        assert partition.error_code == TOPIC_DENIED and not partition.records


@on_trio
async def test_attack_51_a_transaction_does_not_keep_a_right(tmp_path: Path) -> None:
    rules = (
        rule(AclResourceType.TOPIC, TOPIC, AclOperation.WRITE),
        rule(AclResourceType.TRANSACTIONAL_ID, TRANSACTION, AclOperation.WRITE),
        rule(AclResourceType.TRANSACTIONAL_ID, TRANSACTION, AclOperation.DESCRIBE),
    )
    async with guarded(tmp_path, *rules) as (broker, client):
        found = FindCoordinatorRequest(coordinator_keys=[TRANSACTION], key_type=1)
        while (await ask(broker, found, 4)).coordinators[0].error_code:
            await trio.sleep(0.01)
        producer = Writer(client.ask, TRANSACTION)
        await producer.init()
        await producer.write(b"one", topic=TOPIC)
        log = broker.partitions.get(TOPIC, 0).log
        end = log.log_end_offset
        await remove_rules(broker, AclResourceType.TOPIC)
        with pytest.raises(Refused) as refused:
            await producer.write(b"two", topic=TOPIC)
        assert refused.value.code == TOPIC_DENIED and log.log_end_offset == end
        await remove_rules(broker, AclResourceType.TRANSACTIONAL_ID)
        producer_id, epoch = producer.who
        for commit in (True, False):
            ending = EndTxnRequest(
                transactional_id=TRANSACTION, producer_id=producer_id, producer_epoch=epoch, committed=commit
            )
            assert (await client.ask(ending, 4)).error_code == TRANSACTION_DENIED
        with pytest.raises(Refused) as refused:
            await Writer(client.ask, TRANSACTION).init()
        assert refused.value.code == TRANSACTION_DENIED
        assert log.log_end_offset == end  # neither a record nor a marker


@on_trio
async def test_attack_51_a_right_that_was_taken_away_stays_away_after_a_snapshot_and_a_restart(tmp_path: Path) -> None:
    allowed = rule(AclResourceType.TOPIC, TOPIC, AclOperation.WRITE)
    async with guarded(tmp_path, allowed) as (broker, client):
        assert await produce(client) == 0
        await add_rules(broker, rule(AclResourceType.TOPIC, TOPIC, AclOperation.WRITE, AclPermission.DENY))
        assert await produce(client) == TOPIC_DENIED
        snapshot = await broker.quorum.take_snapshot()
        assert snapshot is not None
        assert await produce(client) == TOPIC_DENIED
    async with running_broker(tmp_path, **SETTINGS) as broker, SaslClient(broker) as client:
        assert (await client.log_in("PLAIN", "alice", PASSWORDS["alice"])).error_code == 0
        assert await produce(client) == TOPIC_DENIED
        assert broker.partitions.get(TOPIC, 0).log.log_end_offset == 1


@on_trio
async def test_attack_51_a_fetch_that_waits_is_answered_as_by_kafka_and_the_next_is_refused(tmp_path: Path) -> None:
    """Rights are checked when a request arrives, in both brokers."""
    async with guarded(tmp_path, rule(AclResourceType.TOPIC, TOPIC, AclOperation.READ)) as (broker, client):
        waiting = fetch_in_session(0, -1, (TOPIC, 0))
        waiting.max_wait_ms, waiting.min_bytes = 20_000, 1  # type: ignore[misc]
        answers: list[Any] = []

        async def wait() -> None:
            answers.append(await client.ask(waiting, 12))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            while not len(broker.purgatory):
                await trio.sleep(0.001)
            await remove_rules(broker, AclResourceType.TOPIC)
            assert (await ask(broker, REQUESTS[0](9, lambda _: bytes(16)), 9)).responses
        (partition,) = answers[0].responses[0].partitions
        assert partition.error_code == 0 and partition.records
        (partition,) = (await client.ask(fetch_in_session(0, -1, (TOPIC, 0)), 12)).responses[0].partitions
        assert partition.error_code == TOPIC_DENIED and not partition.records


@on_cluster
async def test_attack_51_on_three_brokers_each_refuses_once_it_knows(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        key: value for key, value in SETTINGS.items() if key not in ("listeners", "offsets.topic.replication.factor")
    }
    async with running_cluster(tmp_path, more_listeners=[f"{SASL}://{HOST}:0"], **settings) as cluster:
        await create(cluster, TOPIC)
        active = await cluster.wait_active()
        await add_rules(active, rule(AclResourceType.TOPIC, TOPIC, AclOperation.WRITE))
        await cluster.until(lambda: all(each.metadata.offset >= active.metadata.offset for each in cluster.up))
        await cluster.until(lambda: leader(cluster, TOPIC) is not None)
        at = leader(cluster, TOPIC)
        assert at is not None
        async with SaslClient(cluster[at]) as client:
            assert (await client.log_in("PLAIN", "alice", PASSWORDS["alice"])).error_code == 0
            assert [await produce(client) for _ in range(5)] == [0] * 5
            other = next(each for each in cluster.up if each.node_id != at)
            await add_rules(other, rule(AclResourceType.TOPIC, TOPIC, AclOperation.WRITE, AclPermission.DENY))
            await cluster.until(lambda: all(len(each.metadata.access.acls.rules) == 2 for each in cluster.up))
            assert await produce(client) == TOPIC_DENIED


# -- 53: clients that pose as nodes ------------------------------------------------------------------------------------


def of_nodes() -> list[int]:
    return [key for key, spec in SUPPORTED_APIS.items() if spec.listeners & CONTROLLER and not spec.listeners & BROKER]


def declared(key: int, random: Random) -> tuple[Request, int]:
    """A well-formed request of any version that is served."""
    spec = SUPPORTED_APIS[key]
    version = random.randint(spec.first, spec.last)
    return sample(request_type(key), version, random), version


def state(broker: Broker) -> Any:
    replica = broker.partitions.get(TOPIC, 0)
    topic = broker.metadata.topics.by_name(TOPIC)
    assert topic is not None
    offsets = replica.log.log_end_offset, replica.log.high_watermark
    return broker.metadata.offset, broker.quorum.epoch, offsets, topic.partitions[0]


@on_trio
async def test_attack_53_a_client_is_no_node(tmp_path: Path) -> None:
    async with guarded(tmp_path, rule(AclResourceType.TOPIC, TOPIC, AclOperation.READ)) as (broker, client):
        random, before = Random(53), state(broker)
        assert {52, 56, 58, 62} <= set(of_nodes())
        for key in of_nodes():
            for _ in range(3):
                request, version = declared(key, random)
                async with SaslClient(broker) as attacker:
                    await attacker.log_in("PLAIN", "alice", PASSWORDS["alice"])
                    assert await attacker.ask(request, version) is None, key
        result = await client.ask(REQUESTS[27](1, lambda _: bytes(16)), 1)  # WriteTxnMarkers
        assert result.markers[0].topics[0].partitions[0].error_code == CLUSTER_DENIED
        topic = broker.metadata.topics.by_name(TOPIC)
        assert topic is not None
        for version in (4, 12, 15, 17):
            state_of_1 = FetchRequest.ReplicaState(replica_id=1, replica_epoch=1)
            by: dict[str, Any] = {"replica_state": state_of_1} if version >= 15 else {}
            replica_id = -1 if version >= 15 else 1
            place = (topic.topic_id if version >= 13 else TOPIC, 0)
            topics = fetch_in_session(0, 0, place).topics
            as_follower = FetchRequest(replica_id=replica_id, max_wait_ms=0, min_bytes=0, topics=topics, **by)
            answer = await client.ask(as_follower, version)
            codes = {part.error_code for each in answer.responses for part in each.partitions} | {answer.error_code}
            assert CLUSTER_DENIED in codes or TOPIC_DENIED in codes, (version, answer)
        assert state(broker) == before and broker.quorum.is_active


@on_trio
async def test_attack_53_a_client_at_the_listener_of_controllers_is_no_node(tmp_path: Path) -> None:
    """Its principal is no super user, and no rule gives it CLUSTER_ACTION."""
    settings = SETTINGS | {"super.users": "User:root"}
    async with running_broker(tmp_path, **settings) as broker:
        await broker.create_missing_topics({TOPIC: 1})
        random, before = Random(53), state(broker)
        for key in (*of_nodes(), FETCH, 27):
            for _ in range(DECLARED_NODES):
                request, version = declared(key, random)
                with trio.move_on_after(10) as waiting:
                    async with ClientConnection(broker, "CONTROLLER") as attacker:
                        answer = await attacker.ask(request, version)
                        assert answer is None or is_denied(key, answer), (key, answer)
                assert not waiting.cancelled_caught, key
        assert state(broker) == before and broker.quorum.is_active


def is_denied(key: int, answer: Any) -> bool:
    """Early versions of Fetch have no place for an error of the whole; then no partition is answered."""
    return CLUSTER_DENIED in codes_of(answer) or (key == FETCH and answer.responses == [])


def codes_of(answer: Any) -> set[int]:
    found = set()
    for field in answer.__fields__:
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, list):
            found |= {code for part in value if hasattr(part, "__fields__") for code in codes_of(part)}
    return found
