"""Attack 52: batches that only a transaction, or a broker, may write (CVE-2018-17196)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.requests_by_api import TOPIC
from support.sasl import PASSWORDS, SASL, SASL_SETTINGS, SaslClient
from support.serving import ask, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.broker.handlers import produce as handler
from trioka.cluster.image.acls import AclOperation, AclPermission, AclResourceType, PatternType
from trioka.protocol.batch import build
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS: dict[str, Any] = {**SASL_SETTINGS, "authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
TRANSACTION_DENIED, INVALID_RECORD = 53, 87
MARKER = Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")  # COMMIT


def plain(**fields: Any) -> bytes:
    return bytes(build([Record(0, 0, b"k", b"v")], **fields))


def request(transactional_id: str | None = None, *, records: bytes | None = None) -> ProduceRequest:
    partition = ProduceRequest.Topic.Partition(index=0, records=plain() if records is None else records)
    topic = ProduceRequest.Topic(name=TOPIC, partition_data=[partition])
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic])


def transactional() -> bytes:
    return plain(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)


def marker(**fields: Any) -> bytes:
    return bytes(build([MARKER], producer_id=7, producer_epoch=0, control=True, **fields))


ATTACKS: dict[str, tuple[ProduceRequest, int]] = {
    "transactional, without an id": (request(records=transactional()), TRANSACTION_DENIED),
    "transactional, with the id of another": (request("of-bob", records=transactional()), TRANSACTION_DENIED),
    "a control batch": (request(records=marker()), INVALID_RECORD),
    "a transactional control batch": (request(records=marker(transactional=True)), TRANSACTION_DENIED),
    "a control batch behind a plain one": (request(records=plain() + marker()), INVALID_RECORD),
    "a transactional batch behind a plain one": (request(records=plain() + transactional()), INVALID_RECORD),
}


@asynccontextmanager
async def writing(directory: Path) -> AsyncIterator[tuple[Broker, SaslClient]]:
    """With alice, who may write to the topic, and to no transactional id."""
    async with running_broker(directory, **SETTINGS) as broker, SaslClient(broker) as client:
        await broker.create_missing_topics({TOPIC: 1})
        rule = CreateAclsRequest.Creation(
            resource_type=AclResourceType.TOPIC,
            resource_name=TOPIC,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:alice",
            host="*",
            operation=AclOperation.WRITE,
            permission_type=AclPermission.ALLOW,
        )
        assert (await ask(broker, CreateAclsRequest(creations=[rule]), 3)).results[0].error_code == 0
        assert (await client.log_in("PLAIN", "alice", PASSWORDS["alice"])).error_code == 0
        yield broker, client


async def code_of(client: SaslClient, wanted: ProduceRequest, version: int) -> int:
    answer = await client.ask(wanted, version)
    return int(answer.responses[0].partition_responses[0].error_code)


async def is_refused(directory: Path, attack: str) -> None:
    wanted, expected = ATTACKS[attack]
    async with writing(directory) as (broker, client):
        log = broker.partitions.get(TOPIC, 0).log
        for version in (3, 8, 9, 12):
            assert await code_of(client, wanted, version) == expected, version
        assert log.log_end_offset == 0
        for _ in range(20):  # now the connection has a fast path
            assert await code_of(client, request(), 9) == 0
        (connection,) = (each for each in broker.network.connections if each.listener == SASL)
        assert connection._fast_path is not None
        assert await code_of(client, wanted, 9) == expected
        assert await code_of(client, request(), 9) == 0
        assert log.log_end_offset == 21


@pytest.mark.parametrize("attack", ATTACKS)
@on_trio
async def test_attack_52_a_batch_of_a_transaction_or_a_broker_is_refused(tmp_path: Path, attack: str) -> None:
    await is_refused(tmp_path, attack)


def test_a_batch_whose_flag_is_not_looked_at_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "_is_transactional", lambda requested: False)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - in a group, or a timeout
        trio.run(is_refused, tmp_path, "transactional, with the id of another")
