"""One file per API: what the broker answers.

A handler is a function `(broker, call, request)` that returns the response; None if the client expects none; LATER if
it answers through the call when the time has come; or a coroutine that does the same with waiting in between. It raises
a `KafkaError` by meaning; `refuse` says what the whole response looks like then.

Here stands what is served, in which versions, and on which listeners: those for clients, those of controllers, or both
(Kafka's listener types). A handler is imported when its API is first asked for. What is not served is not advertised.

What only the active controller can do is marked with `forwards`: another node passes the request on (forwarding.py).
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from trioka.protocol.errors import KafkaError
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.schema import Request, Response

if TYPE_CHECKING:
    from .broker import Broker
    from .network.connection import Answer, Call, Later

R = TypeVar("R", bound=Request)

Refuse = Callable[[R, KafkaError], Response]


@frozen
class Handler(Generic[R]):
    request: type[R]
    serve: "Callable[[Broker, Call, R], Answer | Later | Coroutine[Any, Any, Answer]]"
    refuse: Refuse[R]
    forwards: bool = False  # to the active controller, if this node is not it
    for_nodes: bool = False  # only nodes of the cluster may ask it (CLUSTER_ACTION)
    guarded: "Callable[[Broker, Call, R], Answer | Later | Coroutine[Any, Any, Answer]] | None" = None


def handles(
    request: type[R],
    *,
    refuse: Refuse[R],
    forwards: bool = False,
    for_nodes: bool = False,
    guarded: "Callable[[Broker, Call, R], Answer | Later | Coroutine[Any, Any, Answer]] | None" = None,
) -> "Callable[[Callable[[Broker, Call, R], Answer | Later | Coroutine[Any, Any, Answer]]], Handler[R]]":
    """Marks the function that serves a request. `guarded` serves in its place where there is an authorizer."""

    def mark(serve: "Callable[[Broker, Call, R], Answer | Later | Coroutine[Any, Any, Answer]]") -> Handler[R]:
        return Handler(
            request=request, serve=serve, refuse=refuse, forwards=forwards, for_nodes=for_nodes, guarded=guarded
        )

    return mark


BROKER: Final = 1
CONTROLLER: Final = 2
BOTH: Final = BROKER | CONTROLLER


class Served(NamedTuple):
    name: str  # of the file, and of the handler in it
    first: int  # version that is advertised
    last: int
    listeners: int = BROKER


SERVED: Final[dict[int, Served]] = {
    # librdkafka before 2.11.1 reads from version 0 that compression is possible, so it is said though 3 is the first.
    0: Served("produce", 0, 13),
    1: Served("fetch", 4, 18, BOTH),
    2: Served("list_offsets", 1, 11),
    3: Served("metadata", 0, 13),
    8: Served("offset_commit", 2, 10),
    9: Served("offset_fetch", 1, 10),
    10: Served("find_coordinator", 0, 6),
    11: Served("join_group", 0, 9),
    12: Served("heartbeat", 0, 4),
    13: Served("leave_group", 0, 5),
    14: Served("sync_group", 0, 5),
    15: Served("describe_groups", 0, 6),
    16: Served("list_groups", 0, 5),
    18: Served("api_versions", 0, 4, BOTH),
    19: Served("create_topics", 2, 7, BOTH),
    20: Served("delete_topics", 1, 6, BOTH),
    21: Served("delete_records", 0, 2),
    22: Served("init_producer_id", 0, 5),
    23: Served("offset_for_leader_epoch", 2, 4),
    24: Served("add_partitions_to_txn", 0, 5),
    25: Served("add_offsets_to_txn", 0, 4),
    26: Served("end_txn", 0, 5),
    27: Served("write_txn_markers", 1, 2),
    28: Served("txn_offset_commit", 0, 5),
    29: Served("describe_acls", 1, 3),
    30: Served("create_acls", 1, 3, BOTH),
    31: Served("delete_acls", 1, 3, BOTH),
    32: Served("describe_configs", 1, 4, BOTH),
    33: Served("alter_configs", 0, 2, BOTH),
    34: Served("alter_replica_log_dirs", 1, 2),
    35: Served("describe_log_dirs", 1, 5),
    37: Served("create_partitions", 0, 3, BOTH),
    42: Served("delete_groups", 0, 2),
    43: Served("elect_leaders", 0, 2, BOTH),
    44: Served("incremental_alter_configs", 0, 1, BOTH),
    45: Served("alter_partition_reassignments", 0, 1, BOTH),
    46: Served("list_partition_reassignments", 0, 0, BOTH),
    47: Served("offset_delete", 0, 0),
    48: Served("describe_client_quotas", 0, 1),
    49: Served("alter_client_quotas", 0, 1, BOTH),
    52: Served("vote", 0, 2, CONTROLLER),
    53: Served("begin_quorum_epoch", 0, 1, CONTROLLER),
    54: Served("end_quorum_epoch", 0, 1, CONTROLLER),
    55: Served("describe_quorum", 0, 2, BOTH),
    56: Served("alter_partition", 2, 3, CONTROLLER),
    57: Served("update_features", 0, 2, BOTH),
    58: Served("envelope", 0, 0, CONTROLLER),
    59: Served("fetch_snapshot", 0, 1, CONTROLLER),
    60: Served("describe_cluster", 0, 2, BOTH),
    61: Served("describe_producers", 0, 0),
    62: Served("broker_registration", 0, 4, CONTROLLER),
    63: Served("broker_heartbeat", 0, 2, CONTROLLER),
    64: Served("unregister_broker", 0, 0, BOTH),
    65: Served("describe_transactions", 0, 0),
    66: Served("list_transactions", 0, 2),
    67: Served("allocate_producer_ids", 0, 0, CONTROLLER),
    68: Served("consumer_group_heartbeat", 0, 1),
    69: Served("consumer_group_describe", 0, 1),
    70: Served("controller_registration", 0, 0, CONTROLLER),
    73: Served("assign_replicas_to_dirs", 0, 0, CONTROLLER),
    74: Served("list_config_resources", 0, 1),
    75: Served("describe_topic_partitions", 0, 0),
    80: Served("add_raft_voter", 0, 1, BOTH),
    81: Served("remove_raft_voter", 0, 0, BOTH),
    82: Served("update_raft_voter", 0, 0, CONTROLLER),
}

# What is something else on the listeners of controllers.
OF_CONTROLLERS: Final[dict[int, str]] = {1: "quorum_fetch"}
