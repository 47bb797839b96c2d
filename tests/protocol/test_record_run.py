"""Runs of records are the bytes of the records, one by one."""

import random
from collections.abc import Sequence
from types import ModuleType
from typing import Final

import pytest
from mutants.plant import assert_noticed, within

from trioka.protocol import record_run
from trioka.protocol.record import Headers, Record, encode

BASE: Final = 1_700_000_000_000
FIRSTS: Final = (0, 10, 63, 64, 8000, 8191, 8192, 1_048_570)
HEADERS: Final[tuple[Headers, ...]] = ((), (("from", b"test"), ("nothing", None), ("é", b"")))


@pytest.fixture
def module() -> ModuleType:
    return record_run


def one_by_one(
    first: int, delta: int, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers: Headers
) -> bytes:
    records = [
        Record(first + index, BASE + delta, key, value, headers)
        for index, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    return b"".join(encode(record, base_offset=0, base_timestamp=BASE) for record in records)


def test_runs_are_the_records_one_by_one(module: ModuleType) -> None:
    chance = random.Random(1)
    for first in FIRSTS:
        for headers in HEADERS:
            key = chance.choice([None, b"", b"a key"])
            is_null = chance.random() < 0.5
            values = [chance.randbytes(chance.choice([0, 1, 50, 63, 64, 300])) for _ in range(100)]
            keys = [chance.choice([None, b"", b"k" * 70]) for _ in values]
            delta = chance.choice([0, 1, -5, 100_000])
            shown = [None if is_null and not value else value for value in values]
            encoder = module.RunEncoder(headers, key=key, null_when_empty=is_null)

            found = encoder.encode_values(values, first=first, timestamp_delta=delta)
            assert found == one_by_one(first, delta, [key] * len(values), shown, headers)
            pairs = list(zip(keys, values, strict=True))
            assert encoder.encode_pairs(pairs, first=first, timestamp_delta=delta) == one_by_one(
                first, delta, [key if own is None else own for own in keys], shown, headers
            )
            assert len(found) <= sum(map(len, values)) + len(values) * encoder.overhead_bytes


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("1 << (7 * size - 1)", "1 << (7 * size)"),
        ("range(0x80, 0x100, 2)", "range(0x80, 0x100)"),
        (within("RunEncoder.encode_values", "delta = first + position"), "delta = position"),
        ("{0: NULL} if null_when_empty else {}", "{}"),
        ("self._common_key if key is None else key", "key"),
        (within("RunEncoder.encode_pairs", "_varints_from(first, len(pairs))"), "_varints_from(0, len(pairs))"),
    ],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str) -> None:
    assert_noticed(record_run, right, wrong, test_runs_are_the_records_one_by_one)
