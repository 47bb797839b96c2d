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

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..process.http_limits import BodyRefused
from ..process.routing import ANY, Endpoint, NoEndpoint, endpoint, find_endpoint
from .access import RegistryAccess
from .errors import RegistryError
from .service import Query, RegistryService

LOG: Final = logging.getLogger("trioka.gateway.registry")
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ROOTS: Final = ("subjects", "schemas", "config", "mode", "compatibility", "contexts")
THREADS: Final = 16
MAX_BODY_BYTES: Final = 4 << 20

Handler = Callable[[RegistryService, list[str], Query, Any], Any]


ENDPOINTS: Final = (
    endpoint("GET", "/subjects", lambda s, _, q, __: s.subjects(q)),
    endpoint("POST", "/subjects/*", lambda s, p, q, b: s.lookup(p[0], q, b)),
    endpoint("DELETE", "/subjects/*", lambda s, p, q, _: s.delete_subject(p[0], q)),
    endpoint("GET", "/subjects/*/versions", lambda s, p, q, _: s.versions(p[0], q)),
    endpoint("POST", "/subjects/*/versions", lambda s, p, q, b: s.register(p[0], q, b)),
    endpoint("GET", "/subjects/*/versions/*", lambda s, p, q, _: s.version(p[0], p[1], q)),
    endpoint("DELETE", "/subjects/*/versions/*", lambda s, p, q, _: s.delete_version(p[0], p[1], q)),
    endpoint("GET", "/subjects/*/versions/*/schema", lambda s, p, q, _: Text(s.version_text(p[0], p[1], q))),
    endpoint("GET", "/subjects/*/versions/*/referencedby", lambda s, p, q, _: s.referenced_by(p[0], p[1], q)),
    endpoint("GET", "/schemas", lambda s, _, q, __: s.schemas(q)),
    endpoint("GET", "/schemas/types", lambda s, _, q, __: s.schema_types(q)),
    endpoint("GET", "/schemas/ids/*", lambda s, p, q, _: s.by_id(p[0], q)),
    endpoint("GET", "/schemas/ids/*/schema", lambda s, p, q, _: Text(s.text_by_id(p[0], q))),
    endpoint("GET", "/schemas/ids/*/subjects", lambda s, p, q, _: s.subjects_of_id(p[0], q)),
    endpoint("GET", "/schemas/ids/*/versions", lambda s, p, q, _: s.versions_of_id(p[0], q)),
    endpoint("POST", "/compatibility/subjects/*/versions", lambda s, p, q, b: s.compatibility(p[0], None, q, b)),
    endpoint("POST", "/compatibility/subjects/*/versions/*", lambda s, p, q, b: s.compatibility(p[0], p[1], q, b)),
    endpoint("GET", "/config", lambda s, _, q, __: s.get_config(None, q)),
    endpoint("PUT", "/config", lambda s, _, __, b: s.set_config(None, b)),
    endpoint("DELETE", "/config", lambda s, _, __, ___: s.delete_config(None)),
    endpoint("GET", "/config/*", lambda s, p, q, _: s.get_config(p[0], q)),
    endpoint("PUT", "/config/*", lambda s, p, _, b: s.set_config(p[0], b)),
    endpoint("DELETE", "/config/*", lambda s, p, _, __: s.delete_config(p[0])),
    endpoint("GET", "/mode", lambda s, _, q, __: s.get_mode(None, q)),
    endpoint("PUT", "/mode", lambda s, _, q, b: s.set_mode(None, q, b)),
    endpoint("DELETE", "/mode", lambda s, _, __, ___: s.delete_mode(None)),
    endpoint("GET", "/mode/*", lambda s, p, q, _: s.get_mode(p[0], q)),
    endpoint("PUT", "/mode/*", lambda s, p, q, b: s.set_mode(p[0], q, b)),
    endpoint("DELETE", "/mode/*", lambda s, p, _, __: s.delete_mode(p[0])),
    endpoint("GET", "/contexts", lambda s, _, q, __: s.contexts(q)),
)


class Text(NamedTuple):
    """A response that is a schema's text, and not JSON around it."""

    text: str


def is_write(found: Endpoint[Handler]) -> bool:
    """Lookups and tests are sent by POST, too."""
    return found.method in ("PUT", "DELETE") or (found.method, found.path) == ("POST", ("subjects", ANY, "versions"))


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
            found, parameters = find_endpoint(ENDPOINTS, request.method, raw_path)
            if self._service.not_ready() is not None:  # the topic may not exist, and then nobody has rights to it
                await loop.run_in_executor(self._threads, self._service.wait_until_ready)
            await self._access.check(request.headers.get("authorization"), is_write=is_write(found))
            body = await _body(request) if found.method in ("POST", "PUT") else None
            query = Query(request.query_params)
            result = await loop.run_in_executor(self._threads, found.handle, self._service, parameters, query, body)
        except RegistryError as error:
            headers = {"WWW-Authenticate": 'Basic realm="Kafka"'} if error.code == 401 else None
            return _json({"error_code": error.code, "message": error.message}, error.status, headers)
        except NoEndpoint as error:
            return _json({"error_code": error.status, "message": str(error)}, error.status)
        except BodyRefused:
            raise
        except Exception as error:
            if isinstance(error, RuntimeError) and "shutdown" in str(error):  # of the pool of threads
                return _json({"error_code": 503, "message": "The gateway stops."}, 503)
            LOG.error("internal error in %s %s", request.method, request.url.path[:200], exc_info=error)
            return _json({"error_code": 500, "message": "An internal error; the gateway's log has it."}, 500)
        if isinstance(result, Text):
            return Response(result.text, media_type=CONTENT_TYPE)
        return _json(result, 200)


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
