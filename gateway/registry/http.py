"""The registry's HTTP interface as an ASGI application.

Paths are cut at their slashes before they are decoded, because a subject may contain `%2F`. Requests are served by
threads, of which there are `THREADS`; more wait. Every refusal is `{"error_code": …, "message": …}`.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .access import RegistryAccess
from .errors import RegistryError
from .service import Query, RegistryService

LOG: Final = logging.getLogger("trioka.gateway.registry")
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ROOTS: Final = ("subjects", "schemas", "config", "mode", "compatibility", "contexts")
THREADS: Final = 16
MAX_BODY_BYTES: Final = 4 << 20
ANY: Final = "*"

Handler = Callable[[RegistryService, list[str], Query, Any], Any]


class Endpoint(NamedTuple):
    method: str
    path: tuple[str, ...]  # ANY stands for a parameter
    handle: Handler

    @property
    def is_write(self) -> bool:
        """Lookups and tests are sent by POST, too."""
        return self.method in ("PUT", "DELETE") or (self.method, self.path) == ("POST", ("subjects", ANY, "versions"))


def _endpoint(method: str, path: str, handle: Handler) -> Endpoint:
    return Endpoint(method, tuple(path.strip("/").split("/")), handle)


ENDPOINTS: Final = (
    _endpoint("GET", "/subjects", lambda s, _, q, __: s.subjects(q)),
    _endpoint("POST", "/subjects/*", lambda s, p, q, b: s.lookup(p[0], q, b)),
    _endpoint("DELETE", "/subjects/*", lambda s, p, q, _: s.delete_subject(p[0], q)),
    _endpoint("GET", "/subjects/*/versions", lambda s, p, q, _: s.versions(p[0], q)),
    _endpoint("POST", "/subjects/*/versions", lambda s, p, q, b: s.register(p[0], q, b)),
    _endpoint("GET", "/subjects/*/versions/*", lambda s, p, q, _: s.version(p[0], p[1], q)),
    _endpoint("DELETE", "/subjects/*/versions/*", lambda s, p, q, _: s.delete_version(p[0], p[1], q)),
    _endpoint("GET", "/subjects/*/versions/*/schema", lambda s, p, q, _: Text(s.version_text(p[0], p[1], q))),
    _endpoint("GET", "/subjects/*/versions/*/referencedby", lambda s, p, q, _: s.referenced_by(p[0], p[1], q)),
    _endpoint("GET", "/schemas", lambda s, _, q, __: s.schemas(q)),
    _endpoint("GET", "/schemas/types", lambda s, _, q, __: s.schema_types(q)),
    _endpoint("GET", "/schemas/ids/*", lambda s, p, q, _: s.by_id(p[0], q)),
    _endpoint("GET", "/schemas/ids/*/schema", lambda s, p, q, _: Text(s.text_by_id(p[0], q))),
    _endpoint("GET", "/schemas/ids/*/subjects", lambda s, p, q, _: s.subjects_of_id(p[0], q)),
    _endpoint("GET", "/schemas/ids/*/versions", lambda s, p, q, _: s.versions_of_id(p[0], q)),
    _endpoint("POST", "/compatibility/subjects/*/versions", lambda s, p, q, b: s.compatibility(p[0], None, q, b)),
    _endpoint("POST", "/compatibility/subjects/*/versions/*", lambda s, p, q, b: s.compatibility(p[0], p[1], q, b)),
    _endpoint("GET", "/config", lambda s, _, q, __: s.get_config(None, q)),
    _endpoint("PUT", "/config", lambda s, _, __, b: s.set_config(None, b)),
    _endpoint("DELETE", "/config", lambda s, _, __, ___: s.delete_config(None)),
    _endpoint("GET", "/config/*", lambda s, p, q, _: s.get_config(p[0], q)),
    _endpoint("PUT", "/config/*", lambda s, p, _, b: s.set_config(p[0], b)),
    _endpoint("DELETE", "/config/*", lambda s, p, _, __: s.delete_config(p[0])),
    _endpoint("GET", "/mode", lambda s, _, q, __: s.get_mode(None, q)),
    _endpoint("PUT", "/mode", lambda s, _, q, b: s.set_mode(None, q, b)),
    _endpoint("DELETE", "/mode", lambda s, _, __, ___: s.delete_mode(None)),
    _endpoint("GET", "/mode/*", lambda s, p, q, _: s.get_mode(p[0], q)),
    _endpoint("PUT", "/mode/*", lambda s, p, q, b: s.set_mode(p[0], q, b)),
    _endpoint("DELETE", "/mode/*", lambda s, p, _, __: s.delete_mode(p[0])),
    _endpoint("GET", "/contexts", lambda s, _, q, __: s.contexts(q)),
)


class Text(NamedTuple):
    """A response that is a schema's text, and not JSON around it."""

    text: str


def find_endpoint(method: str, path: bytes) -> tuple[Endpoint, list[str]]:
    """The endpoint of a path that is not decoded yet, with its parameters. Raises 404 and 405."""
    parts = path.decode("latin-1").rstrip("/").split("/")[1:]
    allowed = []
    for each in ENDPOINTS:
        if len(each.path) == len(parts) and all(
            name in (ANY, part) for name, part in zip(each.path, parts, strict=True)
        ):
            if each.method == method:
                # `/schemas/types` stands before no pattern that it would match, so the first one is the right one.
                return each, [unquote(part) for name, part in zip(each.path, parts, strict=True) if name == ANY]
            allowed.append(each.method)
    if allowed:
        raise RegistryError(405, f"HTTP 405 Method Not Allowed: this path takes {', '.join(dict.fromkeys(allowed))}.")
    raise RegistryError(404, "HTTP 404 Not Found: the schema registry has no such path.")


class RegistryApp:
    def __init__(self, service: RegistryService, access: RegistryAccess) -> None:
        self._service, self._access = service, access
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="registry")

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        response = await self._respond(Request(scope, receive))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        try:
            raw_path: bytes = request.scope.get("raw_path") or request.url.path.encode()
            endpoint, parameters = find_endpoint(request.method, raw_path)
            if self._service.not_ready() is not None:  # the topic may not exist, and then nobody has rights to it
                await loop.run_in_executor(self._threads, self._service.wait_until_ready)
            await self._access.check(request.headers.get("authorization"), is_write=endpoint.is_write)
            body = await _body(request) if endpoint.method in ("POST", "PUT") else None
            query = Query(request.query_params)
            found = await loop.run_in_executor(self._threads, endpoint.handle, self._service, parameters, query, body)
        except RegistryError as error:
            headers = {"WWW-Authenticate": 'Basic realm="Kafka"'} if error.code == 401 else None
            return _json({"error_code": error.code, "message": error.message}, error.status, headers)
        except RuntimeError as error:
            if "shutdown" not in str(error):  # of the pool of threads
                raise
            return _json({"error_code": 503, "message": "The gateway stops."}, 503)
        if isinstance(found, Text):
            return Response(found.text, media_type=CONTENT_TYPE)
        return _json(found, 200)


def _json(found: Any, status: int, headers: Mapping[str, str] | None = None) -> Response:
    # ensure_ascii: a message may repeat half a surrogate pair, which UTF-8 cannot carry
    content = json.dumps(found, separators=(",", ":"))
    return Response(content, status_code=status, headers=headers, media_type=CONTENT_TYPE)


async def _body(request: Request) -> Any:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY_BYTES:
            raise RegistryError(413, f"The body of a request to the registry has at most {MAX_BODY_BYTES} bytes.")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"The body is not valid JSON: {str(error)[:200]}") from None
