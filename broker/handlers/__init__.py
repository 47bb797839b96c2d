"""One file per API: what the broker answers.

A handler is a function `(broker, call, request)` that returns the response; None if the client expects none; LATER if
it answers through the call when the time has come; or a coroutine that does the same with waiting in between. It raises
a `KafkaError` by meaning; `refuse` says what the whole response looks like then.

Here stands what is served, in which versions. A handler is imported when its API is first asked for. What is not served
is not advertised.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from trioka.protocol.errors import KafkaError
from trioka.protocol.schema import Request, Response

from ..connection import Answer

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call, Later

R = TypeVar("R", bound=Request)

Refuse = Callable[[R, KafkaError], Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler(Generic[R]):
    request: type[R]
    serve: "Callable[[Broker, Call, R], Answer | Later | Coroutine[Any, Any, Answer]]"
    refuse: Refuse[R]


def handles(
    request: type[R], *, refuse: Refuse[R]
) -> "Callable[[Callable[[Broker, Call, R], Answer | Later | Coroutine[Any, Any, Answer]]], Handler[R]]":
    """Marks the function that serves a request."""

    def mark(serve: "Callable[[Broker, Call, R], Answer | Later | Coroutine[Any, Any, Answer]]") -> Handler[R]:
        return Handler(request=request, serve=serve, refuse=refuse)

    return mark


class Served(NamedTuple):
    name: str  # of the file, and of the handler in it
    first: int  # version that is advertised
    last: int


SERVED: Final[dict[int, Served]] = {
    # librdkafka before 2.11.1 reads from version 0 that compression is possible, so it is said though 3 is the first.
    0: Served("produce", 0, 13),
    1: Served("fetch", 4, 18),
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
    18: Served("api_versions", 0, 4),
    19: Served("create_topics", 2, 7),
    20: Served("delete_topics", 1, 6),
    21: Served("delete_records", 0, 2),
    22: Served("init_producer_id", 0, 5),
    23: Served("offset_for_leader_epoch", 2, 4),
    24: Served("add_partitions_to_txn", 0, 5),
    25: Served("add_offsets_to_txn", 0, 4),
    26: Served("end_txn", 0, 5),
    27: Served("write_txn_markers", 1, 2),
    28: Served("txn_offset_commit", 0, 5),
    32: Served("describe_configs", 1, 4),
    33: Served("alter_configs", 0, 2),
    34: Served("alter_replica_log_dirs", 1, 2),
    35: Served("describe_log_dirs", 1, 5),
    37: Served("create_partitions", 0, 3),
    42: Served("delete_groups", 0, 2),
    43: Served("elect_leaders", 0, 2),
    44: Served("incremental_alter_configs", 0, 1),
    45: Served("alter_partition_reassignments", 0, 1),
    46: Served("list_partition_reassignments", 0, 0),
    47: Served("offset_delete", 0, 0),
    48: Served("describe_client_quotas", 0, 1),
    49: Served("alter_client_quotas", 0, 1),
    55: Served("describe_quorum", 0, 2),
    57: Served("update_features", 0, 2),
    60: Served("describe_cluster", 0, 2),
    61: Served("describe_producers", 0, 0),
    64: Served("unregister_broker", 0, 0),
    65: Served("describe_transactions", 0, 0),
    66: Served("list_transactions", 0, 2),
    68: Served("consumer_group_heartbeat", 0, 1),
    69: Served("consumer_group_describe", 0, 1),
    74: Served("list_config_resources", 0, 1),
    75: Served("describe_topic_partitions", 0, 0),
}
