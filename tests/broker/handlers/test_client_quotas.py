"""AlterClientQuotas and DescribeClientQuotas: quotas are kept, and found by filters."""

from pathlib import Path

from support.serving import ask, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.protocol.errors import InvalidRequest, UnsupportedVersion
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest

EXACT, DEFAULT, SPECIFIED = range(3)
Entity = dict[str, str | None]


async def set_quota(broker: Broker, entity: Entity, key: str, value: float | None) -> int:
    entry = AlterClientQuotasRequest.Entry
    wanted = entry(
        entity=[entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[entry.Op(key=key, value=value or 0.0, remove=value is None)],
    )
    (result,) = (await ask(broker, AlterClientQuotasRequest(entries=[wanted], validate_only=False), 1)).entries
    assert {part.entity_type: part.entity_name for part in result.entity} == entity
    code: int = result.error_code
    return code


def asking(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    component = DescribeClientQuotasRequest.Component
    return DescribeClientQuotasRequest(
        components=[component(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )


async def found(broker: Broker, request: DescribeClientQuotasRequest) -> list[Entity]:
    response = await ask(broker, request, 1)
    assert response.error_code == 0
    return [{part.entity_type: part.entity_name for part in entry.entity} for entry in response.entries]


ANN: Entity = {"user": "ann"}
ANYONE: Entity = {"user": None}
ANN_AT_WORK: Entity = {"client-id": "work", "user": "ann"}
HOST: Entity = {"ip": "127.0.0.1"}


@on_trio
async def test_quotas_are_found_by_filters(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for entity in (ANN, ANYONE, ANN_AT_WORK):
            assert await set_quota(broker, entity, "producer_byte_rate", 1000.0) == 0
        assert await set_quota(broker, HOST, "connection_creation_rate", 5.0) == 0
    async with running_broker(tmp_path) as broker:
        every = (ANN, ANYONE, ANN_AT_WORK, HOST)
        for request, expected in (
            (asking(), every),
            (asking(strict=True), ()),
            (asking(("user", EXACT, "ann")), (ANN, ANN_AT_WORK)),
            (asking(("user", EXACT, "ann"), strict=True), (ANN,)),
            (asking(("user", DEFAULT, None)), (ANYONE,)),
            (asking(("user", SPECIFIED, None)), (ANN, ANYONE, ANN_AT_WORK)),
            (asking(("user", SPECIFIED, None), ("client-id", EXACT, "work")), (ANN_AT_WORK,)),
            (asking(("ip", SPECIFIED, None)), (HOST,)),
        ):
            result = await found(broker, request)
            assert len(result) == len(expected) and all(entity in result for entity in expected), request
        assert await set_quota(broker, ANN, "producer_byte_rate", None) == 0
        assert ANN not in await found(broker, asking())


@on_trio
async def test_filters_and_quotas_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for request, error in (
            (asking(("", SPECIFIED, None)), InvalidRequest),
            (asking(("group", SPECIFIED, None)), UnsupportedVersion),
            (asking(("user", SPECIFIED, None), ("user", SPECIFIED, None)), InvalidRequest),
            (asking(("user", SPECIFIED, None), ("ip", SPECIFIED, None)), InvalidRequest),
            (asking(("user", EXACT, None)), InvalidRequest),
            (asking(("user", DEFAULT, "ann")), InvalidRequest),
            (asking(("user", 3, None)), InvalidRequest),
        ):
            response = await ask(broker, request, 1)
            assert (response.error_code, response.entries) == (error.code, None)
        assert await set_quota(broker, ANN, "nope", 1.0) == InvalidRequest.code
        assert await set_quota(broker, HOST, "producer_byte_rate", 1.0) == InvalidRequest.code
        assert await found(broker, asking()) == []
