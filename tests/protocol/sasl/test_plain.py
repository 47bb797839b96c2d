"""PLAIN: the messages, and the texts that clients show."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import assert_noticed

from trioka.protocol.sasl import plain as plain_module
from trioka.protocol.sasl.client import client_exchange
from trioka.protocol.sasl.exchange import Authenticated, Failed

USERS = {"ann": "s3cret", "ben": ""}


@pytest.fixture
def plain() -> ModuleType:
    return plain_module


def log_in(module: Any, message: bytes) -> Any:
    return module.PlainServer(module.PlainUsers(USERS)).respond(message)


def test_a_user_logs_in(plain: ModuleType) -> None:
    for message in (b"\0ann\0s3cret", b"ann\0ann\0s3cret"):
        assert log_in(plain, message) == Authenticated("User:ann")
    client = client_exchange("PLAIN", "ann", "s3cret", random=b"")
    assert client.respond(b"") == b"\0ann\0s3cret"
    assert client.respond(b"") is None


def test_each_refusal_has_the_text_of_kafka(plain: ModuleType) -> None:
    wrong = "Authentication failed: Invalid username or password"
    for message, text in {
        b"\0ann\0wrong": wrong,
        b"\0nobody\0s3cret": wrong,
        b"\0nobody\0" + b"\0" * 0 + b"x" * 4000: wrong,
        b"\0ann\0\xff": wrong,
        b"x" * 8193: wrong,
        b"ann": "Invalid SASL/PLAIN response: expected 3 tokens, got 1",
        b"ann\0s3cret": "Invalid SASL/PLAIN response: expected 3 tokens, got 2",
        b"\0ann\0s3cret\0": "Invalid SASL/PLAIN response: expected 3 tokens, got 4",
        b"\0\0s3cret": "Authentication failed: username not specified",
        b"\0ann\0": "Authentication failed: password not specified",
        b"\0ben\0": "Authentication failed: password not specified",
        b"root\0ann\0s3cret": "Authentication failed: Client requested an authorization id that is different from "
        "username",
    }.items():
        failed = log_in(plain, message)
        assert isinstance(failed, Failed) and failed.text == text, message
        assert "s3cret" not in failed.reason + failed.claimed


def test_an_unknown_user_is_compared_like_a_known_one(plain: ModuleType) -> None:
    users = plain.PlainUsers(USERS)
    users._digests["hole"] = plain._UNKNOWN  # the one that stands for unknown users
    assert not users.verify("hole", "") and not users.verify("nobody", "")


MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    (
        "    return is_equal and expected is not _UNKNOWN",
        "    return expected is not _UNKNOWN",
        test_each_refusal_has_the_text_of_kafka,
    ),
    ("if authorization_id and authorization_id != name:", "if False:", test_each_refusal_has_the_text_of_kafka),
    ("if not password:", "if False:", test_each_refusal_has_the_text_of_kafka),
    ("if not name:", "if False:", test_each_refusal_has_the_text_of_kafka),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(plain_module, right, wrong, rule)
