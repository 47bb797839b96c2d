"""The REST interface as an ASGI application: which request does what, who calls, and what the response looks like."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..clients import CallerClients, Clients
from ..cluster_access import ClusterAccess, Login
from ..credentials import login_of
from ..process.http_limits import BodyRefused
from ..process.metrics import Metrics
from ..process.routing import Endpoint, NoEndpoint, endpoint, find_endpoint
from ..registry.access import RegistryAccess
from ..registry.service import RegistryService
from . import metadata, produce, read
from .consumers import BEGINNING, END, Instance, Instances, limits_of, places_of
from .errors import WRONG_FORMAT, RestError, as_rest_error
from .formats import BINARY, V2_JSON, WITH_SCHEMA, content_type, format_of, from_bytes
from .requests import name_of, object_of, whole_text

if TYPE_CHECKING:
    from .schemas import SchemaCodecs

LOG: Final = logging.getLogger("trioka.gateway.rest")
ROOTS: Final = ("topics", "brokers", "consumers")
MAX_PARTITION: Final = 2**31 - 1
MAX_TAILS: Final = 100
UNAUTHENTICATED: Final = 401


class Result(NamedTuple):
    body: Any
    status: int = 200
    media_type: str = V2_JSON


class Call(NamedTuple):
    """A request, as handlers see it."""

    parts: list[str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    clients: CallerClients
    login: Login | None
    base: str


class TailResponse(StreamingResponse):
    """Calls `ended` in the end, also if the client has gone before the first byte, and no event was asked for."""

    def __init__(self, tail: read.Tail, ended: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        self._events = tail.events()
        self._ended = ended
        super().__init__(self._events, media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            try:
                await self._events.aclose()
            finally:
                self._ended()


Handler = Callable[["RestApp", Call], Awaitable[Result | Response]]


class RestApp:
    def __init__(
        self,
        access: ClusterAccess,
        clients: Clients,
        instances: Instances,
        metrics: Metrics,
        registry: RegistryService | None,
        registry_access: RegistryAccess | None,
    ) -> None:
        self._access, self._clients, self._metrics = access, clients, metrics
        self.instances = instances
        self._registry, self._registry_access = registry, registry_access
        self._codecs: SchemaCodecs | None = None
        self.tails: set[read.Tail] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        response = await self._respond(Request(scope, receive))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        raw_path: bytes = request.scope.get("raw_path") or request.url.path.encode()
        clients = None
        name = "REST"
        response = _failure(RestError(500, "An internal error; the gateway's log has it."))
        try:
            found, parts = find_endpoint(ENDPOINTS, request.method, raw_path)
            name = f"{found.method} /{'/'.join(found.path)}"
            login = login_of(request.headers.get("authorization"), self._access)
            clients = self._clients.acquire(login)
            body = await _body(request)
            base = f"{request.url.scheme}://{request.headers.get('host', request.url.netloc)}"
            call = Call(parts, request.query_params, request.headers, body, clients, login, base)
            result = await found.handle(self, call)
            if isinstance(result, StreamingResponse):
                clients = None  # the stream releases them
            response = result if isinstance(result, Response) else _json(result.body, result.status, result.media_type)
        except NoEndpoint as error:
            response = _failure(RestError(error.status, str(error)))
        except BodyRefused:
            raise
        except Exception as error:
            refusal = as_rest_error(error)
            if refusal is None:
                LOG.error("internal error in %s", name, exc_info=error)
            else:
                response = _failure(refusal)
        finally:
            if clients is not None:
                if response.status_code == UNAUTHENTICATED:
                    self._clients.forget(clients)
                self._clients.release(clients)
        self._metrics.calls.labels(name, str(response.status_code)).inc()
        return response

    def codecs(self) -> "SchemaCodecs":
        """Loaded with the first request that needs schemas. Called in threads; two at once do no harm."""
        if self._codecs is None:
            from .schemas import SchemaCodecs

            self._codecs = SchemaCodecs(self._registry)
        return self._codecs

    def converter(self, form: str) -> read.Convert:
        """How the bytes of keys and values are shown. Called in threads."""
        if form in WITH_SCHEMA:
            return lambda data, where: self.codecs().decode(data, form, where)
        return lambda data, where: from_bytes(data, form, where)

    async def _check_rights(self, call: Call, form: str, *, is_write: bool = False) -> None:
        """A schema that a request uses, or registers, is the registry's, which has rights of its own."""
        if form in WITH_SCHEMA and self._registry is not None and self._registry_access is not None:
            if self._registry.not_ready() is not None:  # the topic may not exist, and then nobody has rights to it
                await asyncio.to_thread(self._registry.wait_until_ready)
            await self._registry_access.check_login(call.login, is_write=is_write)

    # -- topics --------------------------------------------------------------------------------------------------------

    async def list_topics(self, call: Call) -> Result:
        return Result(await metadata.topics(call.clients))

    async def topic(self, call: Call) -> Result:
        return Result(await metadata.topic(call.clients, call.parts[0]))

    async def partitions(self, call: Call) -> Result:
        return Result(await metadata.topic_partitions(call.clients, call.parts[0]))

    async def partition(self, call: Call) -> Result:
        return Result(await metadata.partition(call.clients, call.parts[0], _partition(call)))

    async def partition_offsets(self, call: Call) -> Result:
        return Result(await metadata.offsets(call.clients, call.parts[0], _partition(call)))

    async def brokers(self, call: Call) -> Result:
        return Result(await metadata.brokers(call.clients))

    async def produce(self, call: Call) -> Result:
        form = format_of(call.headers.get("content-type"), default=None)
        topic = name_of(call.parts[0], "topic")
        partition = _partition(call) if len(call.parts) > 1 else None
        if form in WITH_SCHEMA:
            await self._check_rights(call, form, is_write=produce.registers(call.body))
            await call.clients.cluster.topic(topic)  # before a schema is registered for a topic that is not there
            produced = await asyncio.to_thread(produce.parse, topic, partition, form, call.body, self.codecs)
        else:
            produced = produce.parse(topic, partition, form, call.body, self.codecs)
        return Result(await produce.produce(call.clients, topic, produced))

    async def partition_records(self, call: Call) -> Result:
        form = _format(call)
        await self._check_rights(call, form)
        convert = self.converter(form)
        found = await read.records(call.clients, call.parts[0], _partition(call), call.query, convert)
        return Result(found, media_type=content_type(form))

    async def tail(self, call: Call) -> Response:
        if len(self.tails) >= MAX_TAILS:
            raise RestError(429, f"There are {MAX_TAILS} tails, the most that this gateway serves; try again later.")
        form, last_id = _format(call), call.headers.get("last-event-id")
        await self._check_rights(call, form)
        tail = read.Tail(call.clients, call.parts[0], call.query, last_id, self.converter(form))
        self.tails.add(tail)
        try:
            await tail.begin()
        except BaseException:
            self.tails.discard(tail)
            raise

        def ended() -> None:
            self.tails.discard(tail)
            self._clients.release(call.clients)

        return TailResponse(tail, ended)

    # -- consumer instances --------------------------------------------------------------------------------------------

    async def create(self, call: Call) -> Result:
        await call.clients.cluster.refresh([])  # a login that the cluster does not accept makes no instance
        instance = await self.instances.create(call.login, call.parts[0], call.body)
        group, name = instance.id.group, instance.id.name
        path = f"/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"
        return Result({"instance_id": name, "base_uri": call.base + path})

    async def delete(self, call: Call) -> Result:
        await self.instances.delete(call.login, *call.parts[:2])
        return Result(None, 204)

    async def _use(self, call: Call, do: Callable[[Instance], Any]) -> Any:
        return await self.instances.use(call.login, call.parts[0], call.parts[1], do)

    async def subscribe(self, call: Call) -> Result:
        await self._use(call, lambda each: each.subscribe(object_of(call.body)))
        return Result(None, 204)

    async def subscription(self, call: Call) -> Result:
        return Result(await self._use(call, Instance.subscription))

    async def unsubscribe(self, call: Call) -> Result:
        await self._use(call, Instance.unsubscribe)
        return Result(None, 204)

    async def assign(self, call: Call) -> Result:
        await self._use(call, lambda each: each.assign(object_of(call.body)))
        return Result(None, 204)

    async def assignments(self, call: Call) -> Result:
        return Result(await self._use(call, Instance.assignments))

    async def seek(self, call: Call) -> Result:
        places = places_of(object_of(call.body), "offsets", with_offset=True)
        await self._use(call, lambda each: each.seek(places))
        return Result(None, 204)

    async def seek_to_beginning(self, call: Call) -> Result:
        places = places_of(object_of(call.body), "partitions", offset=BEGINNING)
        await self._use(call, lambda each: each.seek(places))
        return Result(None, 204)

    async def seek_to_end(self, call: Call) -> Result:
        places = places_of(object_of(call.body), "partitions", offset=END)
        await self._use(call, lambda each: each.seek(places))
        return Result(None, 204)

    async def consume(self, call: Call) -> Result:
        timeout_ms, most = limits_of(call.query)
        await self._check_rights(call, format_of(call.headers.get("accept"), default=BINARY))

        def do(instance: Instance) -> tuple[str, list[dict[str, Any]]]:
            form = format_of(call.headers.get("accept"), default=instance.options.form)
            if form != instance.options.form:
                text = f"The instance has the format {instance.options.form}, and the request wants {form}."
                raise RestError(WRONG_FORMAT, text)
            found = instance.records(timeout_ms, most)
            try:
                convert = self.converter(form)
                return form, [read.shown(topic, partition, each, convert) for topic, partition, each in found]
            except Exception:
                instance.give_back(found)
                raise

        form, found = await self._use(call, do)
        return Result(found, media_type=content_type(form))

    async def commit(self, call: Call) -> Result:
        await self._use(call, lambda each: each.commit(call.body))
        return Result(None, 200)

    async def committed(self, call: Call) -> Result:
        return Result(await self._use(call, lambda each: each.committed(object_of(call.body))))


INSTANCE: Final = "/consumers/*/instances/*"
ENDPOINTS: Final[tuple[Endpoint[Handler], ...]] = (
    endpoint("GET", "/topics", RestApp.list_topics),
    endpoint("GET", "/topics/*", RestApp.topic),
    endpoint("POST", "/topics/*", RestApp.produce),
    endpoint("GET", "/topics/*/tail", RestApp.tail),
    endpoint("GET", "/topics/*/partitions", RestApp.partitions),
    endpoint("GET", "/topics/*/partitions/*", RestApp.partition),
    endpoint("POST", "/topics/*/partitions/*", RestApp.produce),
    endpoint("GET", "/topics/*/partitions/*/offsets", RestApp.partition_offsets),
    endpoint("GET", "/topics/*/partitions/*/records", RestApp.partition_records),
    endpoint("GET", "/brokers", RestApp.brokers),
    endpoint("POST", "/consumers/*", RestApp.create),
    endpoint("DELETE", INSTANCE, RestApp.delete),
    endpoint("POST", f"{INSTANCE}/subscription", RestApp.subscribe),
    endpoint("GET", f"{INSTANCE}/subscription", RestApp.subscription),
    endpoint("DELETE", f"{INSTANCE}/subscription", RestApp.unsubscribe),
    endpoint("POST", f"{INSTANCE}/assignments", RestApp.assign),
    endpoint("GET", f"{INSTANCE}/assignments", RestApp.assignments),
    endpoint("POST", f"{INSTANCE}/positions", RestApp.seek),
    endpoint("POST", f"{INSTANCE}/positions/beginning", RestApp.seek_to_beginning),
    endpoint("POST", f"{INSTANCE}/positions/end", RestApp.seek_to_end),
    endpoint("GET", f"{INSTANCE}/records", RestApp.consume),
    endpoint("POST", f"{INSTANCE}/offsets", RestApp.commit),
    endpoint("GET", f"{INSTANCE}/offsets", RestApp.committed),
)


def _partition(call: Call) -> int:
    return whole_text(call.parts[1], "partition", 0, MAX_PARTITION)


def _format(call: Call) -> str:
    """Of reads without an instance: the parameter `format`, else the Accept header."""
    named = call.query.get("format")
    if named is None:
        accept = call.headers.get("accept")
        return BINARY if accept is not None and "text/event-stream" in accept else format_of(accept, default=BINARY)
    return format_of(content_type(named), default=None)


async def _body(request: Request) -> Any:
    """None for an empty one. The process limits its size."""
    data = await request.body()
    if not data.strip():
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RestError(400, f"The body is not valid JSON: {str(error)[:200]}") from None


def _json(body: Any, status: int, media_type: str = V2_JSON, headers: Mapping[str, str] | None = None) -> Response:
    content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    return Response(content, status_code=status, headers=headers, media_type=media_type)


def _failure(error: RestError) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="Kafka"'} if error.status == 401 else None
    return _json({"error_code": error.code, "message": error.message}, error.status, headers=headers)
