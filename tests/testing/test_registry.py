"""`kafka.registry_url`: a schema registry beside the broker of a test."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import pytest

from trioka.testing import Broker


def request(url: str, path: str, body: Any = None, login: str | None = None) -> tuple[int, Any]:
    split = urlsplit(url)
    made = urllib.request.Request(f"http://{split.hostname}:{split.port}{path}")
    if body is not None:
        made.data = json.dumps(body).encode()
    if login is not None:
        made.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(made, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_broker_under_test_has_a_registry_when_it_is_asked_for() -> None:
    with Broker() as kafka:
        url = kafka.registry_url
        assert request(url, "/subjects/a/versions", {"schema": '"int"'})[1]["id"] == 1
        assert kafka.registry_url == url
        assert [key for record in kafka.records("_schemas") if b"NOOP" not in (key := record.key or b"")] == [
            b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
        ]
    with pytest.raises(urllib.error.URLError):
        request(url, "/subjects")


def test_a_registry_on_a_broker_with_logins_lets_in_whom_the_broker_lets_in() -> None:
    pytest.importorskip("cryptography")
    with Broker(tls=True, sasl=True) as kafka:
        split = urlsplit(kafka.registry_url)
        good = f"{split.username}:{split.password}"
        assert request(kafka.registry_url, "/subjects/a/versions", {"schema": '"int"'}, good)[1]["id"] == 1
        assert request(kafka.registry_url, "/subjects", login=good) == (200, ["a"])
        for login in (None, f"{split.username}:wrong", "nobody:x"):
            status, found = request(kafka.registry_url, "/subjects", login=login)
            assert (status, found["error_code"]) == (401, 401)
