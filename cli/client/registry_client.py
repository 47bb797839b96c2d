"""Requests to a schema registry with Confluent's HTTP interface: trioka's, Confluent's, Karapace."""

import base64
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from ..terminal.failure import Exit, Failure

DEFAULT_REGISTRY: Final = "http://localhost:8082"
ENVIRONMENT: Final = "SCHEMA_REGISTRY_URL"
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
MAX_RESPONSE_BYTES: Final = 64 << 20
MAX_REFUSAL_BYTES: Final = 1 << 20
EXIT_CODES: Final = {401: Exit.UNAUTHORISED, 403: Exit.UNAUTHORISED, 404: Exit.NOT_FOUND}


class RegistryFailure(Failure):
    """The registry refused a request."""

    def __init__(self, what: str, error_code: int, status: int) -> None:
        super().__init__(what.removesuffix("."), exit_code=EXIT_CODES.get(status, Exit.FAILED))
        self.error_code = error_code


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the name and the password to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class RegistryClient:
    """`url` may contain a name and a password. Without one, the environment says where the registry is."""

    def __init__(self, url: str | None, timeout_s: float) -> None:
        address = url or os.environ.get(ENVIRONMENT) or DEFAULT_REGISTRY
        split = urllib.parse.urlsplit(address)
        if split.scheme not in ("http", "https") or not split.hostname:
            raise Failure(f"{address} is no address of a registry, such as {DEFAULT_REGISTRY}", exit_code=Exit.USAGE)
        host = split.netloc.rpartition("@")[2]
        self.url = urllib.parse.urlunsplit((split.scheme, host, split.path.rstrip("/"), "", ""))
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._headers = {"Content-Type": CONTENT_TYPE, "Accept": f"{CONTENT_TYPE}, application/json"}
        if split.username is not None:
            login = f"{urllib.parse.unquote(split.username)}:{urllib.parse.unquote(split.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"

    def get(self, *path: str, **query: str) -> Any:
        return self.request("GET", path, query)

    def request(self, method: str, path: tuple[str, ...], query: dict[str, str] | None = None, body: Any = None) -> Any:
        """`path` are the parts between slashes, not quoted. Raises RegistryFailure and Failure."""
        address = "/".join([self.url, *(urllib.parse.quote(part, safe=":") for part in path)])
        if query:
            address += f"?{urllib.parse.urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, data, self._headers, method=method)
        try:
            try:
                with self._opener.open(request, timeout=self._timeout_s) as response:
                    return json.loads(self._read(response, MAX_RESPONSE_BYTES))
            except urllib.error.HTTPError as error:
                with error:
                    raise _refusal(error.code, self._read(error, MAX_REFUSAL_BYTES), self.url) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Failure(
                f"the schema registry {self.url} does not answer: {reason}",
                exit_code=Exit.UNREACHABLE,
                hints=["start one: trioka dev --registry", f"name another one: --registry URL, or {ENVIRONMENT}"],
            ) from None
        except (ValueError, RecursionError):
            raise Failure(f"{self.url} is no schema registry: its response is no JSON", exit_code=Exit.FAILED) from None

    def _read(self, response: Any, most: int) -> bytes:
        """The body. The timeout of a socket is one of each read, so that a slow server could go on for ever."""
        deadline, found = time.monotonic() + self._timeout_s, bytearray()
        while chunk := response.read1(1 << 16):
            found += chunk
            if len(found) > most or time.monotonic() > deadline:
                raise TimeoutError(f"its response is longer than {self._timeout_s:g} s or {most} bytes")
        return bytes(found)


def _refusal(status: int, body: bytes, url: str) -> Failure:
    try:
        found = json.loads(body)
        return RegistryFailure(str(found["message"]), int(found["error_code"]), status)
    except (ValueError, KeyError, TypeError, RecursionError):
        what = f"the schema registry {url} answered {status}"
        return Failure(what, exit_code=EXIT_CODES.get(status, Exit.FAILED))


def field(found: Any, name: str) -> Any:
    """A field that every registry sends."""
    if not isinstance(found, dict) or found.get(name) is None:
        raise Failure(f"the address is that of no schema registry: a response has no field '{name}'")
    return found[name]


def rows(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise Failure("the address is that of no schema registry: a response is no list")
    return found
