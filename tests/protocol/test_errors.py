"""Errors: each has one code, one name on the wire, and a sentence. The compat tests ask Kafka whether all is true."""

import pytest

from trioka.protocol.errors import (
    BY_CODE,
    CorruptMessage,
    InvalidTopic,
    KafkaError,
    NotLeaderOrFollower,
    UnknownServerError,
    error_class,
)


def test_every_code_from_minus_one_to_133_has_a_class_and_zero_means_no_error() -> None:
    assert sorted(BY_CODE) == [-1, *range(1, 134)]


def test_the_name_on_the_wire_follows_from_the_name_of_the_class() -> None:
    assert NotLeaderOrFollower.name == "NOT_LEADER_OR_FOLLOWER"
    assert UnknownServerError.name == "UNKNOWN_SERVER_ERROR"


def test_one_name_on_the_wire_does_not_follow_and_is_given() -> None:
    assert InvalidTopic.name == "INVALID_TOPIC_EXCEPTION"


def test_names_are_unique() -> None:
    assert len({error.name for error in BY_CODE.values()}) == len(BY_CODE)


def test_two_errors_cannot_share_a_code() -> None:
    with pytest.raises(AssertionError, match="Planted and CorruptMessage share code 2"):
        type("Planted", (KafkaError,), {}, code=2)
    assert BY_CODE[2] is CorruptMessage


def test_an_error_without_a_message_says_its_sentence() -> None:
    assert str(CorruptMessage()) == CorruptMessage.__doc__
    assert str(CorruptMessage("batch at 17")) == "batch at 17"


@pytest.mark.parametrize("error", BY_CODE.values(), ids=lambda error: error.name)
def test_every_error_has_a_sentence(error: type[KafkaError]) -> None:
    assert error.__doc__
    assert error.__doc__.endswith(".")
    assert error.__doc__ != KafkaError.__doc__


def test_a_code_of_the_future_is_an_unknown_error() -> None:
    assert error_class(6) is NotLeaderOrFollower
    assert error_class(31_000) is UnknownServerError
