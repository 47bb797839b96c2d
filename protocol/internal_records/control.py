"""The contents of control records: how transactions end, and the metadata log's notes about itself.

The key of a control record is its version and its type, two int16; these are the values. A batch of them has the
control bit set and is never shown to a consumer.
"""

from ..primitives import NULL_UUID, Int16, Int32, Int64, String, Uint16, Uuid
from ..schema import Message, Struct, field


class Voter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid = field("1+", default=NULL_UUID)


class ControlRecordTypeSchema(Message, versions="0"):
    """The type, which follows the version in the key."""

    type: Int16


class EndTxnMarker(Message, versions="0"):
    """A transaction was committed or aborted in this partition, by a coordinator of this epoch."""

    coordinator_epoch: Int32


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The new leader of the metadata quorum and its voters: the first record of each epoch."""

    version: Int16
    leader_id: Int32
    voters: list[Voter]
    granting_voters: list[Voter]


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """How a snapshot begins."""

    version: Int16
    last_contained_log_timestamp: Int64


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The end of a snapshot. A snapshot without it is incomplete."""

    version: Int16


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The version of the quorum's own protocol; from 1 on its voters can change."""

    version: Int16
    kraft_version: Int16


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters, with endpoints and supported versions. Effective as soon as it is appended."""

    class Voter(Struct):
        class Endpoint(Struct):
            name: String
            host: String
            port: Uint16

        class KRaftVersionFeature(Struct):
            min_supported_version: Int16
            max_supported_version: Int16

        voter_id: Int32
        voter_directory_id: Uuid
        endpoints: list[Endpoint]
        kraft_version_feature: KRaftVersionFeature

    version: Int16
    voters: list[Voter]
