"""The file `quorum-state`: the epoch that this node has reached, and whom it voted for in it.

It is one line of JSON, in the words of Kafka's specification plus the version:

    {"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}
    {"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],
     "data_version":0}                      on one line

Version 0 names the voters, because with kraft.version 0 they are fixed by the configuration; from kraft.version 1 on
version 1 is written, and the voters stand in the log. A vote that is forgotten could be given twice, so that a file
that cannot be understood is an error and never a fresh start.
"""

import json
from typing import Final

from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records.quorum_state import QuorumStateData
from trioka.protocol.primitives import NULL_UUID, uuid_from_text, uuid_text

MAX_SIZE_BYTES: Final = 1 << 20  # a cluster of thousands of voters would not need more
_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)


def encode_quorum_state(state: QuorumStateData, version: int) -> str:
    """The text of the file."""
    said: dict[str, object] = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
    }
    if version == 0:
        if state.voted_directory_id != NULL_UUID:
            raise ProtocolError("quorum-state: version 0 cannot say which directory was voted for")
        voters = state.current_voters
        said = {
            "clusterId": state.cluster_id,
            **said,
            "appliedOffset": state.applied_offset,
            "currentVoters": None if voters is None else [{"voterId": voter.voter_id} for voter in voters],
        }
    elif version == 1:
        said["votedDirectoryId"] = uuid_text(state.voted_directory_id)
    else:
        raise ProtocolError(f"quorum-state: version {version} is not known")
    return json.dumps({**said, "data_version": version}, separators=(",", ":"))


def decode_quorum_state(text: str) -> tuple[QuorumStateData, int]:
    """What the file says, and its version."""
    if len(text) > MAX_SIZE_BYTES:
        raise ProtocolError(f"quorum-state: {len(text)} characters, at most {MAX_SIZE_BYTES} make sense")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError(f"quorum-state: {text[:80]!r} is not JSON") from None
    if not isinstance(said, dict):
        raise ProtocolError("quorum-state: it is no JSON object")
    version = _integer(said, "data_version", _INT32)
    if version not in QuorumStateData.__versions__:
        raise ProtocolError(f"quorum-state: version {version} is not known")
    state = QuorumStateData(
        leader_id=_integer(said, "leaderId", _INT32),
        leader_epoch=_integer(said, "leaderEpoch", _INT32),
        voted_id=_integer(said, "votedId", _INT32),
        voted_directory_id=_directory(said) if version > 0 else NULL_UUID,
        cluster_id=_text(said, "clusterId") if version == 0 else "",
        applied_offset=_integer(said, "appliedOffset", _INT64) if version == 0 else 0,
        current_voters=_voters(said) if version == 0 else [],
    )
    return state, version


def _integer(said: dict[str, object], key: str, values: range) -> int:
    value = said.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value not in values:
        raise ProtocolError(f"quorum-state: {key} is {value!r}")
    return value


def _text(said: dict[str, object], key: str) -> str:
    value = said.get(key)
    if not isinstance(value, str):
        raise ProtocolError(f"quorum-state: {key} is {value!r}")
    return value


def _directory(said: dict[str, object]) -> bytes:
    return uuid_from_text(_text(said, "votedDirectoryId"))


def _voters(said: dict[str, object]) -> list[QuorumStateData.CurrentVoter] | None:
    voters = said.get("currentVoters")
    if voters is None and "currentVoters" in said:
        return None
    if not isinstance(voters, list) or not all(isinstance(voter, dict) for voter in voters):
        raise ProtocolError(f"quorum-state: currentVoters is {voters!r}")
    return [QuorumStateData.CurrentVoter(voter_id=_integer(voter, "voterId", _INT32)) for voter in voters]
