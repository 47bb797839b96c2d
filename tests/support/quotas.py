"""Sets quotas of a broker, and opens connections of clients with quotas."""

from collections.abc import Mapping

import trio
from support.serving import ask

from trioka.broker.broker import Broker
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest

ANONYMOUS = {"user": "ANONYMOUS"}


class SteppedClock:
    """A clock that stands still until a test changes it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return 1_700_000_000_000


async def set_quota(broker: Broker, entity: Mapping[str, str | None], **values: float | None) -> None:
    """None removes a quota. The broker applies it when this returns."""
    request = AlterClientQuotasRequest(entries=[_entry(entity, values)], validate_only=False)
    (result,) = (await ask(broker, request, 1)).entries
    assert result.error_code == 0, result.error_message
    await _applied(broker)


async def change_quota(broker: Broker, entity: Mapping[str, str | None], **values: float | None) -> None:
    """The same without a request, which an authorizer may refuse."""
    entries = [_entry(entity, values)]
    await broker.quorum.change(lambda controller: controller.alter_client_quotas(entries, validate_only=False))
    await _applied(broker)


def _entry(entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> AlterClientQuotasRequest.Entry:
    entry = AlterClientQuotasRequest.Entry
    return entry(
        entity=[entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[entry.Op(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


async def _applied(broker: Broker) -> None:
    while broker.client_quotas._stamp is not broker.metadata.quotas.stamp:
        await trio.sleep(0.001)
