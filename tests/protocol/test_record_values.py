"""The walk over values finds what the decoder of whole records finds."""

import random
from types import ModuleType

import pytest
from mutants.plant import assert_noticed, within

from trioka.protocol import record, record_values
from trioka.protocol.errors import InvalidRecord
from trioka.protocol.record import Record


def check_values(walk: ModuleType) -> None:
    chance = random.Random(7)
    for _ in range(60):
        count = chance.choice([0, 1, 3, 200])
        offset, moment = chance.randrange(1 << 40), chance.randrange(1 << 41)
        records = [
            Record(
                offset + number,
                moment + chance.choice([0, 1, -70, 1 << 20]),
                chance.choice([None, b"", b"k", b"k" * 63, b"k" * 64, b"k" * 9000]),
                chance.choice([None, b"", b"v" * 63, b"v" * 64, b"v" * 20000]),
                (("name", b"content"),) * chance.choice([0, 0, 1, 64]),
            )
            for number in range(count)
        ]
        data = b"".join(record.encode(each, base_offset=offset, base_timestamp=moment) for each in records)
        assert walk.values(data, count) == [each.value or b"" for each in records]
        for damaged in (data[:-1], data + b"\0", data[: len(data) // 2]):
            if damaged != data and count:
                with pytest.raises(InvalidRecord):
                    walk.values(damaged, count)


def test_values_alone_are_those_of_the_records() -> None:
    check_values(record_values)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("position = end", "position = stop + 1"),
        ("position != size", "False"),
    ],
)
def test_a_mistake_in_the_walk_over_values_is_noticed(right: str, wrong: str) -> None:
    assert_noticed(record_values, within("values", right), wrong, check_values)


def check_bounds(walk: ModuleType) -> None:
    data = bytearray(record.encode(Record(0, 0, None, b"abc"), base_offset=0, base_timestamp=0))
    data[5] = 2 * 4  # the length of the value, one too many
    with pytest.raises(InvalidRecord):
        walk.values(bytes(data), 1)


def test_a_value_beyond_its_record_is_refused() -> None:
    assert_noticed(record_values, within("values", "stop >= end"), "stop > end", check_bounds)
