"""Records of many shapes for clients to write and read, the same in every run but for the time of day."""

import random
import time
from collections.abc import Mapping, Sequence

from .client import Record

# Of today, or the retention of a week would take the records away while they are being read.
FIRST_TIMESTAMP_MS = int(time.time() - 3600) * 1000
STEP_MS = 10


def shapes(lacks: Mapping[str, str]) -> list[Record]:
    """Everything that a key, a value and headers can be; less what the client lacks."""
    found = [
        Record(b"key", b"value"),
        Record(None, b"no key"),
        Record(b"no value", None),
        Record(b"", b""),
        Record("schlüssel".encode(), "wert 🦊".encode()),
        Record(bytes(range(256)), bytes(reversed(range(256)))),
        Record(b"one header", b"", headers=(("name", b"value"),)),
        Record(b"two headers", b"", headers=(("a", b"1"), ("b", bytes(range(256))))),
        Record(b"the same name twice", b"", headers=(("a", b"1"), ("a", b"2"))),
        Record(b"empty header", b"", headers=(("empty", b""),)),
        Record(b"header names", b"", headers=(("", b"1"), ("größe", b"2"))),
    ]
    if "null records" not in lacks:
        found.append(Record(None, None))
    if "null headers" not in lacks:
        found.append(Record(b"null header", b"", headers=(("nothing", None),)))
    return timed(found)


def few(count: int, text: str = "") -> list[Record]:
    """Records that compress well."""
    return timed([Record(f"key {n}".encode(), f"value {n} {text}".encode() * 5) for n in range(count)])


def incompressible(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def timed(records: Sequence[Record]) -> list[Record]:
    return [record._replace(timestamp=FIRST_TIMESTAMP_MS + index * STEP_MS) for index, record in enumerate(records)]
