"""A schema registry as far as a reader needs one: schemas by their path, over HTTP."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


class Registry:
    """Use it in a `with`. A path that is not among `schemas` is not known, and one with an empty text fails. A schema
    that is not of Avro is a dictionary, with its type and its references.
    """

    def __init__(self) -> None:
        self.schemas: dict[str, str | dict[str, Any]] = {}
        schemas = self.schemas

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = schemas.get(self.path)
                body = json.dumps(found if isinstance(found, dict) else {"schema": found}).encode()
                self.send_response(404 if found is None else 200 if found else 500)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Logs nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Registry":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
