"""The supported APIs, and the contract of their handlers.

A handler is a function `(broker, call, request)`. It returns the response, None if the client expects none, or PENDING
if it will respond through the call later; or it is a coroutine function that returns one of these. If it raises a
`KafkaError`, `error_response` builds the whole response from the error.

`SUPPORTED_APIS` lists the APIs with their versions and listener types: those for clients, those of controllers, or
both. Other APIs are not advertised. A handler's module is imported at the first request for its API.

Handlers with `forwards` run on the active controller only: other nodes forward the request
(broker/controller/forwarding.py).
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from trioka.protocol.errors import KafkaError
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.schema import Request, Response

if TYPE_CHECKING:
    from .broker import Broker
    from .network.connection import Call, CallResponse, Pending

R = TypeVar("R", bound=Request)

ErrorResponder = Callable[[R, KafkaError], Response]


@frozen
class Handler(Generic[R]):
    request: type[R]
    serve: "Callable[[Broker, Call, R], CallResponse | Pending | Coroutine[Any, Any, CallResponse]]"
    error_response: ErrorResponder[R]
    forwards: bool = False  # to the active controller, unless this node is active
    cluster_only: bool = False  # requires CLUSTER_ACTION, which only nodes of the cluster have
    authorized: "Callable[[Broker, Call, R], CallResponse | Pending | Coroutine[Any, Any, CallResponse]] | None" = None
    refusal: "Callable[[Broker, Call, R], Response | None] | None" = None  # each node calls it first


def handles(
    request: type[R],
    *,
    error_response: ErrorResponder[R],
    forwards: bool = False,
    cluster_only: bool = False,
    authorized: "Callable[[Broker, Call, R], CallResponse | Pending | Coroutine[Any, Any, CallResponse]] | None" = None,
    refusal: "Callable[[Broker, Call, R], Response | None] | None" = None,
) -> "Callable[[Callable[[Broker, Call, R], CallResponse | Pending | Coroutine[Any, Any, CallResponse]]], Handler[R]]":
    """Decorate the handler of a request. `authorized` replaces it on brokers that have an authorizer. `refusal` returns
    the response to a request that the client may not make. The node that receives the request calls it, and so does the
    node to which the request is forwarded."""

    def mark(
        serve: "Callable[[Broker, Call, R], CallResponse | Pending | Coroutine[Any, Any, CallResponse]]",
    ) -> Handler[R]:
        return Handler(
            request=request,
            serve=serve,
            error_response=error_response,
            forwards=forwards,
            cluster_only=cluster_only,
            authorized=authorized,
            refusal=refusal,
        )

    return mark


BROKER: Final = 1
CONTROLLER: Final = 2
BOTH: Final = BROKER | CONTROLLER


class ApiSpec(NamedTuple):
    name: str  # of the module in broker/handlers/, and of the handler in it
    first: int  # advertised version
    last: int  # advertised version
    listeners: int = BROKER


SUPPORTED_APIS: Final[dict[int, ApiSpec]] = {
    # Advertised from version 0, although version 3 is the first that is served: librdkafka before 2.11.1 derives from
    # version 0 that compression is supported.
    0: ApiSpec("produce", 0, 13),
    1: ApiSpec("fetch", 4, 18, BOTH),
    2: ApiSpec("list_offsets", 1, 11),
    3: ApiSpec("metadata", 0, 13),
    8: ApiSpec("offset_commit", 2, 10),
    9: ApiSpec("offset_fetch", 1, 10),
    10: ApiSpec("find_coordinator", 0, 6),
    11: ApiSpec("join_group", 0, 9),
    12: ApiSpec("heartbeat", 0, 4),
    13: ApiSpec("leave_group", 0, 5),
    14: ApiSpec("sync_group", 0, 5),
    15: ApiSpec("describe_groups", 0, 6),
    16: ApiSpec("list_groups", 0, 5),
    17: ApiSpec("sasl_handshake", 0, 1, BOTH),
    18: ApiSpec("api_versions", 0, 4, BOTH),
    19: ApiSpec("create_topics", 2, 7, BOTH),
    20: ApiSpec("delete_topics", 1, 6, BOTH),
    21: ApiSpec("delete_records", 0, 2),
    22: ApiSpec("init_producer_id", 0, 5),
    23: ApiSpec("offset_for_leader_epoch", 2, 4),
    24: ApiSpec("add_partitions_to_txn", 0, 5),
    25: ApiSpec("add_offsets_to_txn", 0, 4),
    26: ApiSpec("end_txn", 0, 5),
    27: ApiSpec("write_txn_markers", 1, 2),
    28: ApiSpec("txn_offset_commit", 0, 5),
    29: ApiSpec("describe_acls", 1, 3),
    30: ApiSpec("create_acls", 1, 3, BOTH),
    31: ApiSpec("delete_acls", 1, 3, BOTH),
    32: ApiSpec("describe_configs", 1, 4, BOTH),
    33: ApiSpec("alter_configs", 0, 2, BOTH),
    34: ApiSpec("alter_replica_log_dirs", 1, 2),
    35: ApiSpec("describe_log_dirs", 1, 5),
    36: ApiSpec("sasl_authenticate", 0, 2, BOTH),
    37: ApiSpec("create_partitions", 0, 3, BOTH),
    38: ApiSpec("create_delegation_token", 1, 3, BOTH),
    39: ApiSpec("renew_delegation_token", 1, 2, BOTH),
    40: ApiSpec("expire_delegation_token", 1, 2, BOTH),
    41: ApiSpec("describe_delegation_token", 1, 3, BOTH),
    42: ApiSpec("delete_groups", 0, 2),
    43: ApiSpec("elect_leaders", 0, 2, BOTH),
    44: ApiSpec("incremental_alter_configs", 0, 1, BOTH),
    45: ApiSpec("alter_partition_reassignments", 0, 1, BOTH),
    46: ApiSpec("list_partition_reassignments", 0, 0, BOTH),
    47: ApiSpec("offset_delete", 0, 0),
    48: ApiSpec("describe_client_quotas", 0, 1),
    49: ApiSpec("alter_client_quotas", 0, 1, BOTH),
    50: ApiSpec("describe_user_scram_credentials", 0, 0),
    51: ApiSpec("alter_user_scram_credentials", 0, 0, BOTH),
    52: ApiSpec("vote", 0, 2, CONTROLLER),
    53: ApiSpec("begin_quorum_epoch", 0, 1, CONTROLLER),
    54: ApiSpec("end_quorum_epoch", 0, 1, CONTROLLER),
    55: ApiSpec("describe_quorum", 0, 2, BOTH),
    56: ApiSpec("alter_partition", 2, 3, CONTROLLER),
    57: ApiSpec("update_features", 0, 2, BOTH),
    58: ApiSpec("envelope", 0, 0, CONTROLLER),
    59: ApiSpec("fetch_snapshot", 0, 1, CONTROLLER),
    60: ApiSpec("describe_cluster", 0, 2, BOTH),
    61: ApiSpec("describe_producers", 0, 0),
    62: ApiSpec("broker_registration", 0, 4, CONTROLLER),
    63: ApiSpec("broker_heartbeat", 0, 2, CONTROLLER),
    64: ApiSpec("unregister_broker", 0, 0, BOTH),
    65: ApiSpec("describe_transactions", 0, 0),
    66: ApiSpec("list_transactions", 0, 2),
    67: ApiSpec("allocate_producer_ids", 0, 0, CONTROLLER),
    68: ApiSpec("consumer_group_heartbeat", 0, 1),
    69: ApiSpec("consumer_group_describe", 0, 1),
    70: ApiSpec("controller_registration", 0, 0, CONTROLLER),
    73: ApiSpec("assign_replicas_to_dirs", 0, 0, CONTROLLER),
    74: ApiSpec("list_config_resources", 0, 1),
    75: ApiSpec("describe_topic_partitions", 0, 0),
    80: ApiSpec("add_raft_voter", 0, 1, BOTH),
    81: ApiSpec("remove_raft_voter", 0, 0, BOTH),
    82: ApiSpec("update_raft_voter", 0, 0, CONTROLLER),
}

# APIs that have another handler on the listeners of controllers.
CONTROLLER_HANDLERS: Final[dict[int, str]] = {1: "quorum_fetch"}
