"""Requests to a schema registry over HTTP, and a gateway with one."""

import http.client
import json
from typing import Any
from urllib.parse import quote, urlsplit


class Registry:
    """`registry("POST", "/subjects/a/versions", {"schema": …})` is the status and the decoded body."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return self.send(method, path, None if body is None else json.dumps(body).encode())

    def send(self, method: str, path: str, body: bytes | None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": "application/vnd.schemaregistry.v1+json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()

    def register(self, subject: str, text: str, schema_type: str = "AVRO", **more: Any) -> int:
        """Its id."""
        body = {"schema": text, "schemaType": schema_type, **more}
        status, found = self("POST", f"/subjects/{quote(subject, safe=':')}/versions", body)
        assert status == 200, found
        number = found["id"]
        assert isinstance(number, int)
        return number
