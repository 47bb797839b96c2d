"""A provider of bearer tokens on loopback: its key set, and an endpoint that gives a token for client credentials."""

import json
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

from security.tokens import AUDIENCE, ISSUER, claims, key_set, signed

OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
CLIENT_ID, CLIENT_SECRET = "node", "client-s3cret:%&"


def fresh_token(**changed: Any) -> str:
    now = int(time.time())
    return signed(claims(**{"iat": now, "exp": now + 600, **changed}))


class Provider:
    def __init__(self) -> None:
        self.url = ""
        self.lifetime_s = 600
        self.tokens = 0  # given so far
        self.refused = 0
        self.scopes: set[str] = set()
        self.status = 200
        self.answer: bytes | None = None  # instead of a token
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()

    @property
    def keys_url(self) -> str:
        return f"{self.url}/keys"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def respond(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, bytes]:
        self.is_asked.set()
        self.may_answer.wait()
        if authorization != f"{CLIENT_ID}:{CLIENT_SECRET}" or form.get("grant_type") != ["client_credentials"]:
            self.refused += 1
            return 401, b'{"error": "invalid_client"}'
        self.scopes |= set(form.get("scope", []))
        self.tokens += 1
        token = fresh_token(sub=CLIENT_ID, exp=int(time.time()) + self.lifetime_s)
        made = json.dumps({"access_token": token, "expires_in": self.lifetime_s, "token_type": "Bearer"}).encode()
        return self.status, made if self.answer is None else self.answer

    def listener(self, name: str) -> dict[str, str]:
        """The settings of a listener that accepts its tokens."""
        return {
            f"listener.name.{name}.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;",
            "sasl.oauthbearer.jwks.endpoint.url": self.keys_url,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "trioka.oauth.allowed.urls": f"{self.keys_url},{self.token_url}",
        }


@contextmanager
def token_provider() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, key_set())

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
            said = b64decode(encoded).decode() if scheme == "Basic" else ""
            self._answer(*provider.respond(said, form))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if 300 <= status < 400:
                self.send_header("Location", provider.token_url)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
