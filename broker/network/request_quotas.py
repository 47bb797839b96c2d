"""Client quotas of requests: what is recorded when, the throttle times in responses, and the mutes.

    Produce     the frame's bytes, when the response is made; the response leaves with its throttle_time_ms
    Fetch       the response's bytes, before it is made: a throttled client gets an empty one, which does not count
    all         the time that the handler took of the event loop; not for acks=0, and not for requests of other nodes
    changes     the active controller decides (security/client_quotas.py); its throttle_time_ms is in the response

A client above several quotas waits for the longest time. `Dispatch.quotas` is an instance of this while any quota is
set in the metadata, otherwise None. The fast paths call `charge_produce` and `may_fetch`.
"""

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Final

from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.schema import Request, Response

from ..config.network_keys import FETCH_MAX_BYTES
from ..security.client_quotas import ClientQuotas, QuotaTable, Usage, user_of
from .channel_mute import mute
from .charge import Charge
from .connection import PENDING, PRODUCE_KEY, Call, CallResponse, Connection, Pending

if TYPE_CHECKING:
    from ..broker import Broker
    from ..fastpath.coalescer import DeferredRequest

THROTTLE_TIME_BYTES: Final = 4
FIRST_FLEXIBLE_PRODUCE: Final = 9  # from this version on the last byte is the count of tagged fields, 0
FETCH_RESPONSE_BYTES: Final = 40  # of a Fetch response of one topic, without partitions
FETCH_PARTITION_BYTES: Final = 42  # without records
CONSUMER: Final = -1  # replica id in fetches of consumers


class RequestQuotas:
    __slots__ = ("_broker", "clients")

    def __init__(self, broker: "Broker", clients: ClientQuotas) -> None:
        self._broker = broker
        self.clients = clients

    def serve(self, call: Call, request: Request, size: int) -> CallResponse | Pending:
        """Like `Route.serve`, and records the usage of the request."""
        charge = call.charge = Charge(size, _is_exempt(call, request))
        charge.resume()
        response = call.route.serve(call, request)
        charge.suspend()
        return PENDING if response is PENDING else self.charged(call, response)

    def charged(self, call: Call, response: CallResponse) -> CallResponse:
        """The response with the client's throttle time; mutes its connection for that time."""
        charge: Charge | None = getattr(call, "charge", None)
        if charge is None or charge.is_settled:  # of a fast path, or begun when there were no quotas
            return response
        charge.is_settled = True
        connection, client_id = call.connection, call.client_id
        user = user_of(connection.principal)
        throttle_ms = 0
        if call.route.key == PRODUCE_KEY:
            throttle_ms = self._record(self.clients.produce, connection, client_id, charge.size)
        if not charge.is_exempt:
            spent_ms = self.clients.record_time(user, client_id, charge.time_s)
            throttle_ms = self._longest(connection, client_id, throttle_ms, spent_ms)
        if isinstance(response, Response):
            controller_ms = getattr(response, "throttle_time_ms", 0)  # set by the active controller
            if controller_ms > throttle_ms:
                throttle_ms = controller_ms
            elif throttle_ms and hasattr(response, "throttle_time_ms"):
                response = copy(response)  # it may be shared with other responses
                response.throttle_time_ms = throttle_ms
        elif response is not None and throttle_ms:
            response = with_throttle_time(response, call.version, throttle_ms)
        if throttle_ms:
            mute(self._broker, connection, throttle_ms)
        return response

    def charge_produce(self, connection: Connection, client_id: str, size: int, seconds: float) -> int:
        """Records Produces that a fast path has appended. Mutes the client and returns its throttle time, if any."""
        if self._record_produce(self.clients.usage(connection.principal, client_id), size, seconds):
            return 0
        throttle_ms = self._record(self.clients.produce, connection, client_id, size)
        spent_ms = self.clients.record_time(user_of(connection.principal), client_id, seconds)
        throttle_ms = self._longest(connection, client_id, throttle_ms, spent_ms)
        if throttle_ms:
            mute(self._broker, connection, throttle_ms)
        return throttle_ms

    def charge_round(self, requests: "Sequence[DeferredRequest]", sizes: Sequence[int], seconds: float) -> list[int]:
        """Records requests that were appended together and took `seconds` each. Returns the throttle time of each, in
        their order; empty if none is throttled."""
        shares: dict[tuple[str, str], int] = {}  # bytes by principal and client id
        for (connection, _, fast_path), size in zip(requests, sizes, strict=True):
            client = (connection.principal, fast_path.client_id)
            shares[client] = shares.get(client, 0) + size
        alone = len(shares) == 1
        over = set()
        for client, share in shares.items():
            count = len(sizes) if alone else sum((each[0].principal, each[2].client_id) == client for each in requests)
            if not self._record_produce(self.clients.usage(*client), share, count * seconds):
                over.add(client)
        if not over:
            return []
        return [
            self.charge_produce(connection, fast_path.client_id, size, seconds)
            if (connection.principal, fast_path.client_id) in over
            else 0
            for (connection, _, fast_path), size in zip(requests, sizes, strict=True)
        ]

    def _record_produce(self, usage: Usage, size: int, seconds: float) -> bool:
        """Records the usage, unless the client must be throttled."""
        now_ms = self.clients.now_ms()
        produce, request = usage.produce, usage.request
        if produce is not None and produce.record(size, now_ms):
            produce.take_back(size, now_ms)
            return False
        if request is not None and request.record(seconds * 100, now_ms):
            request.take_back(seconds * 100, now_ms)
            if produce is not None:
                produce.take_back(size, now_ms)
            return False
        return True

    def charge_fetch(self, call: Call, response_bytes: int) -> int:
        """Called before the response is built. If the result is above 0, the client gets an empty response and is
        muted."""
        charge: Charge | None = getattr(call, "charge", None)
        if charge is None:
            return 0
        charge.is_settled = True
        connection, client_id = call.connection, call.client_id
        user = user_of(connection.principal)
        spent_ms = self.clients.record_time(user, client_id, charge.time_s)
        table = self.clients.fetch
        bytes_ms = self._record(table, connection, client_id, response_bytes)
        throttle_ms = self._longest(connection, client_id, bytes_ms, spent_ms)
        if throttle_ms:
            if table.levels:
                now_ms = self.clients.now_ms()
                table.counter(user, client_id, now_ms).take_back(response_bytes, now_ms)
            mute(self._broker, connection, throttle_ms)
        return throttle_ms

    def may_fetch(self, usage: Usage, response_bytes: int, seconds: float) -> bool:
        """Records a response of the fast path. If the client must be throttled, nothing is recorded and the general
        path responds."""
        now_ms = self.clients.now_ms()
        fetch, request = usage.fetch, usage.request
        if fetch is not None and fetch.record(response_bytes, now_ms):
            fetch.take_back(response_bytes, now_ms)
            return False
        if request is not None and request.record(seconds * 100, now_ms):
            request.take_back(seconds * 100, now_ms)
            if fetch is not None:
                fetch.take_back(response_bytes, now_ms)
            return False
        return True

    def max_fetch_bytes(self, connection: Connection, client_id: str) -> int | None:
        return self.clients.max_fetch_bytes(user_of(connection.principal), client_id)

    def _record(self, table: QuotaTable, connection: Connection, client_id: str, size: int) -> int:
        throttle_ms = self.clients.record_bytes(table, user_of(connection.principal), client_id, size)
        if throttle_ms:
            table.note_throttle(user_of(connection.principal), client_id, throttle_ms, self.clients.now_ms())
        return throttle_ms

    def _longest(self, connection: Connection, client_id: str, bytes_ms: int, spent_ms: int) -> int:
        if spent_ms > bytes_ms:
            user, now_ms = user_of(connection.principal), self.clients.now_ms()
            self.clients.request.note_throttle(user, client_id, spent_ms, now_ms)
            return spent_ms
        return bytes_ms


def with_throttle_time(frames: bytes, version: int, throttle_ms: int) -> bytes:
    """Adds the throttle time to the last of several encoded Produce responses."""
    end = len(frames) - (version >= FIRST_FLEXIBLE_PRODUCE)
    return b"".join((frames[: end - THROTTLE_TIME_BYTES], throttle_ms.to_bytes(THROTTLE_TIME_BYTES), frames[end:]))


def fetch_response_bytes(partitions: int, records_bytes: int) -> int:
    """The size of a Fetch response, without a few bytes of names and tags."""
    return FETCH_RESPONSE_BYTES + partitions * FETCH_PARTITION_BYTES + records_bytes


def _is_exempt(call: Call, request: Request) -> bool:
    """Requests exempt from request_percentage: those between nodes, and Produces without a response."""
    if isinstance(request, ProduceRequest):
        return not request.acks
    if isinstance(request, FetchRequest):
        return (request.replica_id, request.replica_state.replica_id) != (CONSUMER, CONSUMER)
    return call.route.handler.cluster_only


def follow_quotas(broker: "Broker") -> None:
    """The quotas of the metadata have changed: requests are checked from now on, or no longer."""
    quotas = broker.metadata.quotas
    broker.admission.quotas.load(quotas)
    clients = broker.client_quotas
    broker.dispatch.quotas = RequestQuotas(broker, clients) if clients.load(quotas) else None


def fetch_limits(broker: "Broker", call: Call, request: FetchRequest, asker: int) -> tuple[int, int]:
    """max_bytes and min_bytes of a fetch, limited to the client's burst, or the client would always be throttled."""
    max_bytes, quotas = min(request.max_bytes, broker.config[FETCH_MAX_BYTES]), broker.dispatch.quotas
    most = None if quotas is None or asker >= 0 else quotas.max_fetch_bytes(call.connection, call.client_id)
    if most is None:
        return max_bytes, request.min_bytes
    return min(max_bytes, most), min(request.min_bytes, max_bytes, most)


def charge_fetch(broker: "Broker", call: Call, asker: int, partitions: int, records_bytes: int) -> int:
    """The throttle time of a client whose fetch response has this size; 0 for brokers."""
    quotas = broker.dispatch.quotas
    if quotas is None or asker >= 0:
        return 0
    return quotas.charge_fetch(call, fetch_response_bytes(partitions, records_bytes))
