"""The quota controller_mutation_rate on the active controller, for CreateTopics, CreatePartitions and DeleteTopics.

Only the controller sees the changes of all clients on all brokers, so it decides. The broker with the client's
connection reads the throttle time from the response and mutes the connection (network/limits/request_quotas.py).
"""

from typing import TYPE_CHECKING

from ..security.client_quotas import MutationCharge, user_of
from ..security.guard import SELF_PRINCIPAL

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def charge_of(broker: "Broker", call: "Call", first_strict_version: int) -> MutationCharge:
    """The charge of a request. From `first_strict_version` on, requests above the quota are rejected; before, the
    client is only throttled. Nodes of the cluster, which create internal topics, have no quota."""
    principal = call.connection.principal
    quotas = broker.client_quotas
    quotas.load(broker.metadata.quotas)  # a node without the broker role is not notified of quota changes
    return MutationCharge(
        quotas,
        user_of(principal),
        call.client_id,
        is_free=principal == SELF_PRINCIPAL or not quotas.mutation.levels,
        is_strict=call.version >= first_strict_version,
    )
