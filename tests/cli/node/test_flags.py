"""The quick reader of `dev` and `serve` says what click says, or nothing."""

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioka.cli.node.command import dev, serve
from trioka.cli.node.flags import START_COMMANDS, read

COMMANDS: dict[str, click.Command] = {"dev": dev, "serve": serve}

words = st.one_of(
    st.sampled_from(["--port", "--data", "--topic", "--override", "--check", "--help", "--", "-x", "", "-"]),
    st.sampled_from(["9092", "0", "-1", "+5", "x", "orders:3", "a=b", "--port=1", "--port=", "--data=d", "--topic=t"]),
    st.sampled_from(
        ["--log-level", "info", "--log-format=json", "--log-format", "human", "loud", "--http-port", "off"]
    ),
    st.sampled_from(["--check=1", "--override=a=b", "--por", "٣", "1_000", " 7", "server.properties"]),
)


def as_click_reads(name: str, arguments: list[str]) -> dict[str, Any] | None:
    """None where click has something else to say than values."""
    try:
        return COMMANDS[name].make_context(name, list(arguments)).params
    except (click.ClickException, click.exceptions.Exit):
        return None


@given(st.sampled_from(["dev", "serve"]), st.lists(words, max_size=6))
def test_what_is_read_quickly_is_what_click_reads(name: str, arguments: list[str]) -> None:
    quickly = read(START_COMMANDS[name], arguments)
    if quickly is not None:
        assert quickly == as_click_reads(name, arguments)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("dev", ""),
        ("dev", "--port 0 --data here --topic a:1 --topic b:2"),
        ("dev", "--port=19092"),
        ("dev", "--nodes 3"),
        ("dev", "--http-port off --log-format json --log-level=debug"),
        ("serve", "server.properties --override a=b --override=c=d=e --check"),
        ("serve", "--check"),
    ],
)
def test_the_usual_lines_are_read_quickly(name: str, line: str) -> None:
    quickly = read(START_COMMANDS[name], line.split())
    assert quickly is not None
    assert quickly == as_click_reads(name, line.split())


@pytest.mark.parametrize("line", ["--help", "--port", "--port x", "--no 3", "stray", "--port --data", "--data -x"])
def test_what_leaves_a_doubt_is_left_to_click(line: str) -> None:
    assert read(START_COMMANDS["dev"], line.split()) is None
