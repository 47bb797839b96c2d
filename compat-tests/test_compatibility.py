"""The page about compatibility says what is served, and what clients asked when it was made."""

import json
import socket
import struct
from pathlib import Path

import compatibility
from eavesdropper import RecordingProxy

from trioka.broker.api import SUPPORTED_APIS
from trioka.protocol.codec import encode
from trioka.protocol.messages.api_versions import ApiVersionsRequest


def test_the_page_says_what_is_served() -> None:
    assert compatibility.PAGE.read_text(encoding="utf-8") == compatibility.page(), "run `make compatibility`"


def test_the_page_names_the_versions_that_are_pinned() -> None:
    assert json.loads(compatibility.FOUND.read_text())["versions"] == compatibility.versions(), (
        "run `make compatibility`"
    )


def test_an_empty_cell_is_of_a_request_that_another_client_made() -> None:
    cells = [line.split("|")[3:-1] for line in compatibility.page().splitlines() if line.endswith("|") and "(" in line]
    assert cells and all(any(cell.strip() for cell in row) for row in cells)
    assert "–" not in {cell.strip() for row in cells for cell in row}


def test_no_client_was_served_what_is_not_advertised() -> None:
    for name, key, version in json.loads(compatibility.FOUND.read_text())["requests"]:
        is_a_question = key == 18  # a client may ask ApiVersions in any version
        assert is_a_question or SUPPORTED_APIS[key].first <= version <= SUPPORTED_APIS[key].last, (name, key, version)


def test_every_client_was_heard_and_passed() -> None:
    found = json.loads(compatibility.FOUND.read_text())
    assert {name for name, _, _ in found["requests"]} == set(compatibility.CLIENTS)
    assert all(found["tests"][name]["passed"] > 20 for name in compatibility.CLIENTS)


def test_whoever_listens_hears_names_and_versions_and_changes_nothing(tmp_path: Path) -> None:
    named = ApiVersionsRequest(client_software_name="kgo", client_software_version="1")
    first = _frame(18, 3, b"c", b"\x00" + encode(named, 3))
    second = _frame(3, 12, b"c", b"rest")
    with RecordingProxy() as ear, socket.create_server(("127.0.0.1", 0)) as broker:
        ear.listen_to("127.0.0.1", broker.getsockname()[1])
        with socket.create_connection(("127.0.0.1", ear.port)) as client:
            served, _ = broker.accept()
            with served:
                for piece in (first[:7], first[7:] + second[:5], second[5:]):
                    client.sendall(piece)
                expected = first + second
                heard = b""
                while len(heard) < len(expected):
                    heard += served.recv(1000)
                served.sendall(b"answer")
                assert client.recv(100) == b"answer"
    assert heard == expected
    assert ear.heard == {("franz-go", 18, 3), ("franz-go", 3, 12)}
    ear.save(tmp_path / "heard.json")
    ear.save(tmp_path / "heard.json")
    assert len(json.loads((tmp_path / "heard.json").read_text())) == 2


def _frame(key: int, version: int, client_id: bytes, rest: bytes) -> bytes:
    body = struct.pack(">hhih", key, version, 1, len(client_id)) + client_id + rest
    return struct.pack(">i", len(body)) + body
