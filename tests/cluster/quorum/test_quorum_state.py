"""The file quorum-state: Kafka's words, and no guess where it cannot be read."""

import json

import pytest

from trioka.cluster.quorum.quorum_state import decode_quorum_state, encode_quorum_state
from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records.quorum_state import QuorumStateData

VERSION_0 = (
    '{"clusterId":"","leaderId":-1,"leaderEpoch":5,"votedId":2,"appliedOffset":0,'
    '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
)
VERSION_1 = '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'


@pytest.mark.parametrize("text", [VERSION_0, VERSION_1])
def test_what_kafka_has_written_is_written_the_same_again(text: str) -> None:
    state, version = decode_quorum_state(text)
    assert encode_quorum_state(state, version) == text


def test_a_vote_is_for_a_directory_too() -> None:
    state = QuorumStateData(leader_epoch=3, voted_id=2, voted_directory_id=bytes(range(16)))
    assert decode_quorum_state(encode_quorum_state(state, 1)) == (state, 1)


def test_version_0_cannot_say_a_directory() -> None:
    with pytest.raises(ProtocolError):
        encode_quorum_state(QuorumStateData(voted_directory_id=bytes(range(16))), 0)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", "[" * 100_000, VERSION_1[:-1], VERSION_1.replace(":1}", ":2}"), " " * (1 << 21)],
)
def test_a_file_that_cannot_be_understood_is_an_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_quorum_state(text)


@pytest.mark.parametrize("text", [VERSION_0, VERSION_1])
@pytest.mark.parametrize("wrong", [None, True, "x", 1.5, 1 << 64, -(1 << 64), [1], {}])
def test_a_field_of_another_kind_or_a_missing_one_is_an_error(text: str, wrong: object) -> None:
    message = json.loads(text)
    for key in message:
        if key == "currentVoters" and wrong is None:
            continue
        if key == "clusterId" and wrong == "x":
            continue
        with pytest.raises(ProtocolError):
            decode_quorum_state(json.dumps({**message, key: wrong}))
        with pytest.raises(ProtocolError):
            decode_quorum_state(json.dumps({name: value for name, value in message.items() if name != key}))
