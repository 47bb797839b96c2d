"""The file `quorum-state`: the epoch of this node, and the candidate that it voted for in that epoch.

It is one line of JSON, with the names of Kafka's specification plus the version:

    {"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}
    {"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],
     "data_version":0}                      on one line

Version 0 names the voters, because with kraft.version 0 they are fixed by the configuration; from kraft.version 1 on
version 1 is written, and the voters are in the log. A node that loses its vote could vote twice in an epoch, so a file
that cannot be parsed is an error and never a fresh start.
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
    fields: dict[str, object] = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
    }
    if version == 0:
        if state.voted_directory_id != NULL_UUID:
            raise ProtocolError("quorum-state: version 0 has no field for the directory that was voted for")
        voters = state.current_voters
        fields = {
            "clusterId": state.cluster_id,
            **fields,
            "appliedOffset": state.applied_offset,
            "currentVoters": None if voters is None else [{"voterId": voter.voter_id} for voter in voters],
        }
    elif version == 1:
        fields["votedDirectoryId"] = uuid_text(state.voted_directory_id)
    else:
        raise ProtocolError(f"quorum-state: version {version} is not known")
    return json.dumps({**fields, "data_version": version}, separators=(",", ":"))


def decode_quorum_state(text: str) -> tuple[QuorumStateData, int]:
    """The content of the file, and its version."""
    if len(text) > MAX_SIZE_BYTES:
        raise ProtocolError(f"quorum-state: {len(text)} characters, at most {MAX_SIZE_BYTES} make sense")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError(f"quorum-state: {text[:80]!r} is not JSON") from None
    if not isinstance(fields, dict):
        raise ProtocolError("quorum-state: it is no JSON object")
    version = _integer(fields, "data_version", _INT32)
    if version not in QuorumStateData.__versions__:
        raise ProtocolError(f"quorum-state: version {version} is not known")
    state = QuorumStateData(
        leader_id=_integer(fields, "leaderId", _INT32),
        leader_epoch=_integer(fields, "leaderEpoch", _INT32),
        voted_id=_integer(fields, "votedId", _INT32),
        voted_directory_id=_directory(fields) if version > 0 else NULL_UUID,
        cluster_id=_text(fields, "clusterId") if version == 0 else "",
        applied_offset=_integer(fields, "appliedOffset", _INT64) if version == 0 else 0,
        current_voters=_voters(fields) if version == 0 else [],
    )
    return state, version


def _integer(fields: dict[str, object], key: str, values: range) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value not in values:
        raise ProtocolError(f"quorum-state: {key} is {value!r}")
    return value


def _text(fields: dict[str, object], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise ProtocolError(f"quorum-state: {key} is {value!r}")
    return value


def _directory(fields: dict[str, object]) -> bytes:
    return uuid_from_text(_text(fields, "votedDirectoryId"))


def _voters(fields: dict[str, object]) -> list[QuorumStateData.CurrentVoter] | None:
    voters = fields.get("currentVoters")
    if voters is None and "currentVoters" in fields:
        return None
    if not isinstance(voters, list) or not all(isinstance(voter, dict) for voter in voters):
        raise ProtocolError(f"quorum-state: currentVoters is {voters!r}")
    return [QuorumStateData.CurrentVoter(voter_id=_integer(voter, "voterId", _INT32)) for voter in voters]
