"""Lines of the input, however it is cut into pieces."""

import io
import os
import random

import pytest

from trioka.cli.producer import lines
from trioka.cli.producer.lines import LineReader
from trioka.cli.terminal.failure import Failure


class Pieces(io.RawIOBase):
    """A source without a descriptor that returns these pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__()
        self._pieces = pieces

    def read(self, size: int = -1) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def read_all(reader: LineReader) -> list[bytes]:
    found = []
    while not reader.is_ended:
        found += reader.read()
    return found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\r\n\r\nb\r", [b"a", b"", b"b"]),
        (b"a\rb\nc\n\n", [b"a\rb", b"c", b""]),
        (b"one\ntwo\r\nthree", [b"one", b"two", b"three"]),
    ],
)
def test_lines_are_the_same_however_the_input_is_cut(data: bytes, expected: list[bytes]) -> None:
    chance = random.Random(7)
    for _ in range(50):
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(5)))
        pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert read_all(LineReader(Pieces([piece for piece in pieces if piece]))) == expected


def test_a_pipe_is_read_as_it_fills() -> None:
    readable, writable = os.pipe()
    with open(readable, "rb") as source, open(writable, "wb", buffering=0) as sink:
        reader = LineReader(source)
        assert reader.descriptor == readable
        sink.write(b"a\nb")
        assert reader.read() == [b"a"]
        sink.write(b"c\n")
        assert reader.read() == [b"bc"]


def test_a_line_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    reader = LineReader(Pieces([b"a\n", *[b"x" * 300] * 5]))
    assert reader.read() == [b"a"]
    with pytest.raises(Failure, match="a line is longer"):
        read_all(reader)
    assert reader.is_ended
