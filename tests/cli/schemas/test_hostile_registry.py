"""What a server that is no registry, or a hostile one, does to `trioka schemas` and `consume --decode registry`."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Ended, command

from trioka.cli.client.registry_client import RegistryClient
from trioka.cli.terminal.failure import Failure
from trioka.cli.topics.registry_decoding import RegistryDecoder
from trioka.protocol.schema_framing import Undecodable

Respond = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(respond: Respond) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            respond(self)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Not to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://ann:secret@127.0.0.1:{running.server_port}"
        running.shutdown()


def answer(status: int, body: bytes, **headers: str) -> Respond:
    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return respond


def run(url: str, *words: str) -> Ended:
    return command("schemas", *words, environment={"SCHEMA_REGISTRY_URL": url})


def test_a_redirect_is_not_followed_with_the_password() -> None:
    seen: list[str | None] = []

    def record(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        answer(200, b"[]")(handler)

    with server(record) as other:
        target = other.replace("ann:secret@", "")
        for status in (301, 302, 303, 307, 308):
            with server(answer(status, b"", Location=f"{target}/schemas")) as url:
                ended = run(url, "list")
                assert (ended.code, f"answered {status}" in ended.stderr) == (1, True), ended
    assert seen == []


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b"5", b"[5]", b'[{"subject": 1}]', DEEP, b"\xff", b"<html>"])
@pytest.mark.parametrize("status", [200, 500])
def test_a_response_that_is_none_of_a_registry_is_one_sentence(status: int, body: bytes, tmp_path: Path) -> None:
    schema = tmp_path / "a.avsc"
    schema.write_text('"int"')
    with server(answer(status, body)) as url:
        for words in (("list",), ("show", "a"), ("add", "a", str(schema)), ("check", "a", str(schema))):
            ended = run(url, *words)
            assert ended.code != 0 and "Traceback" not in ended.stderr, ended
        if status == 200:
            with pytest.raises((Undecodable, Failure)):
                RegistryDecoder(RegistryClient(url, 5))(b"\0\0\0\0\1x")


@pytest.mark.parametrize("status", [200, 404])
def test_a_response_that_drips_ends_at_the_time_limit(status: int) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b" ")
                threading.Event().wait(0.02)
        except OSError:
            pass

    with server(drip) as url, pytest.raises(Failure, match="longer than"):
        RegistryClient(url, 0.3).get("schemas")


def test_references_that_form_a_circle_or_a_long_chain_end() -> None:
    def chain(handler: BaseHTTPRequestHandler) -> None:
        last = handler.path.partition("?")[0].rpartition("/")[2]
        reference = {"name": f"n{last}", "subject": "s", "version": int(last) + 1}
        answer(200, json.dumps({"schema": '"int"', "references": [reference]}).encode())(handler)

    def circle(handler: BaseHTTPRequestHandler) -> None:
        reference = {"name": "self", "subject": "s", "version": 1}
        answer(200, json.dumps({"schema": '"int"', "references": [reference]}).encode())(handler)

    for respond in (chain, circle):
        with server(respond) as url:
            assert RegistryDecoder(RegistryClient(url, 5))(b"\0\0\0\0\1\2") == 1
