"""`trioka produce` and `trioka consume` against a broker."""

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from support.command_line import at, broker_at, command

from trioka.cli.terminal.failure import Exit
from trioka.cli.topics import produce
from trioka.cli.topics.record_format import Printer

__all__ = ["at"]


@pytest.fixture(scope="module")
def letters(at: str) -> str:
    """A topic with the values a to e, in one partition."""
    command("topics", "create", "letters", at=at)
    assert command("produce", "letters", at=at, stdin=b"a\nb\nc\nd\ne\n").code == Exit.OK
    return "letters"


@pytest.mark.parametrize(
    ("where", "read"),
    [
        ("start", "abcde"),
        ("end", ""),
        ("2", "cde"),
        ("+1", "bcde"),
        ("-2", "de"),
        ("-99", "abcde"),
        ("1:3", "bc"),
        ("@2000-01-01", "abcde"),
        ("@-1h", "abcde"),
        ("@2200-01-01", ""),
    ],
)
def test_reading_begins_at_the_given_offset(at: str, letters: str, where: str, read: str) -> None:
    ended = command("consume", letters, "-e", "-o", where, at=at)
    assert ended.code == Exit.OK
    assert ended.out.replace("\n", "") == read


def test_reading_ends_after_so_many(at: str, letters: str) -> None:
    assert command("consume", letters, "-n", "2", at=at).out == "a\nb\n"
    assert command("consume", letters, "--max-messages", "1", "--from-beginning", at=at).out == "a\n"


def test_only_what_matches_is_shown(at: str, letters: str) -> None:
    assert command("consume", letters, "-e", "--grep", "[bd]", at=at).out == "b\nd\n"


def test_keys_headers_and_compression_arrive(at: str) -> None:
    command("topics", "create", "keyed", at=at)
    arguments = ("-K", "=", "-H", "from:test", "-z", "zstd", "--acks", "1")
    assert command("produce", "keyed", *arguments, at=at, stdin=b"k1=v1\nno key\n=empty\n").code == Exit.OK
    lines = command("consume", "keyed", "-e", "-f", "json", at=at).out.splitlines()
    assert [(result["key"], result["value"], result["headers"]) for result in map(json.loads, lines)] == [
        ("k1", "v1", {"from": "test"}),
        (None, "no key", {"from": "test"}),
        ("", "empty", {"from": "test"}),
    ]


def test_a_file_and_a_fixed_key_and_no_value(at: str, tmp_path: Path) -> None:
    command("topics", "create", "filed", at=at)
    (tmp_path / "lines").write_bytes(b"one\r\n\n")
    assert command("produce", "filed", "--file", str(tmp_path / "lines"), "-k", "k", "--null", at=at).code == Exit.OK
    assert command("consume", "filed", "-e", "-f", "%k %S|", at=at).out == "k 3|k -1|"


def test_a_topic_that_is_not_there_is_created_by_the_broker_or_named(at: str, tmp_path: Path) -> None:
    ended = command("produce", "fresh", at=at, stdin=b"x\n")
    assert ended.code == Exit.OK and "the broker creates it" in ended.stderr
    with broker_at(tmp_path, auto_create_topics_enable="false") as strict:
        refused = command("produce", "fresh", at=strict, stdin=b"x\n")
        assert refused.code == Exit.NOT_FOUND and "create it: trioka topics create fresh" in refused.stderr
    assert command("consume", "freesh", at=at).code == Exit.NOT_FOUND
    assert command("produce", "fresh", "-p", "9", at=at, stdin=b"x\n").code == Exit.NOT_FOUND


def test_a_record_that_is_too_large_is_explained_with_the_others_written(at: str) -> None:
    command("topics", "create", "narrow", "-c", "max.message.bytes=300", at=at)
    ended = command("produce", "narrow", at=at, stdin=b"x" * 5000 + b"\n")
    assert ended.code == Exit.FAILED
    assert "TRK-1010 MESSAGE_TOO_LARGE" in ended.stderr and "1 of 1 records were not written" in ended.stderr


# -- formats -----------------------------------------------------------------------------------------------------------

RECORD = SimpleNamespace(
    topic="t", partition=1, offset=2, timestamp=3, key=b"k", value=b'{"a": 1}', headers=[("h", b"v"), ("n", None)]
)


@pytest.mark.parametrize(
    ("form", "decode", "shown"),
    [
        (None, "auto", b'{"a": 1}\n'),
        ("raw", "auto", b'{"a": 1}'),
        ("%t/%p/%o %T %k=%s %K %S %h%%\\n", "auto", b't/1/2 3 k={"a": 1} 1 8 h=v,n=%\n'),
        ("\\x41\\t\\\\", "auto", b"A\t\\"),
        ("%s", "hex", b'{"a": 1}'.hex().encode()),
        ("%s", "base64", b"eyJhIjogMX0="),
        ("%s", "json", b'{"a": 1}'),
    ],
)
def test_a_record_is_printed_by_its_format(form: str | None, decode: str, shown: bytes) -> None:
    assert Printer(form, decode).render(RECORD) == shown


def test_json_shows_text_as_text_and_bytes_in_base64() -> None:
    odd = SimpleNamespace(**{**vars(RECORD), "value": b"\xff", "key": None})
    result = json.loads(Printer("json", "auto").render(odd))
    assert result["value"] == {"base64": "/w=="} and result["key"] is None
    assert json.loads(Printer("json", "auto").render(RECORD))["value"] == {"a": 1}
    assert json.loads(Printer("json", "text").render(RECORD))["value"] == '{"a": 1}'


@pytest.mark.parametrize("form", ["%q", "abc%", "\\"])
def test_a_format_that_means_nothing_is_a_usage_error(form: str) -> None:
    with pytest.raises(click.UsageError):
        Printer(form, "auto")


def test_records_carry_the_time_of_their_sending(at: str) -> None:
    before = int(time.time() * 1000)
    command("topics", "create", "timed", at=at)
    command("produce", "timed", at=at, stdin=b"x\n")
    (result,) = re.findall(r"\d+", command("consume", "timed", "-e", "-f", "%T", at=at).out)
    assert before <= int(result) <= int(time.time() * 1000)


def test_a_partition_that_the_topic_does_not_have_is_an_error(at: str, letters: str) -> None:
    ended = command("consume", letters, "-p", "99", "-e", at=at)
    assert ended.code == Exit.NOT_FOUND
    assert "letters has no partition 99" in ended.stderr


def test_on_a_terminal_produce_says_where_the_records_are(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command("topics", "create", "placed", "--partitions", "2", at=at).code == Exit.OK
    assert command("produce", "placed", "-p", "1", at=at, stdin=b"a\n").stderr == ""
    monkeypatch.setattr(produce, "is_stderr_terminal", lambda: True)
    ended = command("produce", "placed", "-p", "1", at=at, stdin=b"b\nc\n")
    assert ended.code == Exit.OK
    assert ended.stderr.endswith("2 records written: placed:1 1–2\n")
