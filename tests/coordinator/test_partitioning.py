"""Which partition remembers a name: as Java computes it, or two brokers would both take a group for theirs."""

import pytest

from trioka.coordinator.partitioning import java_hash, partition_of


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
