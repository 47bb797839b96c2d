"""Which partition remembers a name: as Java computes it, or two brokers would both take a group for theirs."""

import pytest

from trioka.coordinator.partitioning import CACHED_NAMES, MAX_CACHED_CHARS, _cached_hash, java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("my-group", -1906497762),
        ("grüße", 98768023),
        ("\N{PILE OF POO}", 1772556),
    ],
)
def test_the_hash_is_that_of_a_java_string(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_a_name_has_its_partition_whatever_the_sign_of_its_hash() -> None:
    assert partition_of("hello", 50) == 99162322 % 50
    assert partition_of("my-group", 50) == 1906497762 % 50
    assert partition_of("polygenelubricants", 50) == 0


@pytest.mark.parametrize("length", [MAX_CACHED_CHARS, MAX_CACHED_CHARS + 1, 32_767])
def test_a_name_has_the_same_partition_whether_its_hash_is_kept_or_not(length: int) -> None:
    name = "ü" * length
    assert {partition_of(name, 50) for _ in range(3)} == {abs(java_hash(name)) % 50}


def test_of_long_names_nothing_is_kept_and_of_short_ones_so_many() -> None:
    for number in range(2 * CACHED_NAMES):
        partition_of(f"group-{number}", 50)
        partition_of(f"{number:0>{MAX_CACHED_CHARS + 1}}", 50)
    kept = _cached_hash.cache_info()
    assert kept.currsize == CACHED_NAMES
    assert partition_of(f"group-{2 * CACHED_NAMES - 1}", 50) >= 0
    assert _cached_hash.cache_info().hits == kept.hits + 1
