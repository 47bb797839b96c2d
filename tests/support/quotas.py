"""Sets quotas of a broker, and opens connections of clients with quotas."""

from collections.abc import Mapping

import trio
from support.serving import ask

from trioka.broker.broker import Broker
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest

ANONYMOUS = {"user": "ANONYMOUS"}


async def set_quota(broker: Broker, entity: Mapping[str, str | None], **values: float | None) -> None:
    """None removes a quota. The broker applies it when this returns."""
    entry = AlterClientQuotasRequest.Entry
    wanted = entry(
        entity=[entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[entry.Op(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    (result,) = (await ask(broker, AlterClientQuotasRequest(entries=[wanted], validate_only=False), 1)).entries
    assert result.error_code == 0, result.error_message
    while broker.client_quotas._stamp is not broker.metadata.quotas.stamp:
        await trio.sleep(0.001)
