"""The records of `__cluster_metadata`: all that a cluster knows about itself.

A record is an unsigned varint 1 (the frame's version), the record's key and its version as unsigned varints, then
the record. State changes only by replaying these, in order, on every node.
"""

from ..primitives import Boolean, Bytes, Float64, Int8, Int16, Int32, Int64, String, Uint16, Uuid
from ..schema import Entry, Struct, field


class RegisterBrokerRecord(Entry, key=0, versions="0-4", flexible="0+"):
    """A broker has joined. It stays fenced until it has caught up."""

    class EndPoint(Struct):
        name: String
        host: String
        port: Uint16
        security_protocol: Int16

    class Feature(Struct):
        name: String
        min_supported_version: Int16
        max_supported_version: Int16

    broker_id: Int32
    is_migrating_zk_broker: Boolean = field("2+", default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[EndPoint]
    features: list[Feature]
    rack: String | None
    fenced: Boolean = field(default=True)
    in_controlled_shutdown: Boolean = field("1+", default=False)
    log_dirs: list[Uuid] = field("3+", default=[], tag=0, tagged="3+")
    cordoned_log_dirs: list[Uuid] | None = field("4+", default=None, tag=1, tagged="4+")


class UnregisterBrokerRecord(Entry, key=1, versions="0", flexible="0+"):
    """A broker is forgotten."""

    broker_id: Int32
    broker_epoch: Int64


class TopicRecord(Entry, key=2, versions="0", flexible="0+"):
    """A topic exists."""

    name: String
    topic_id: Uuid


class PartitionRecord(Entry, key=3, versions="0-2", flexible="0+"):
    """The complete state of a partition: its replicas, its leader and its ISR."""

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = field(default=-1)
    leader_recovery_state: Int8 = field(default=0, tag=0, tagged="0+")
    leader_epoch: Int32 = field(default=-1)
    partition_epoch: Int32 = field(default=-1)
    directories: list[Uuid] = field("1+", default=[])
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=1, tagged="2+")
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=2, tagged="2+")


class ConfigRecord(Entry, key=4, versions="0", flexible="0+"):
    """A key of a resource's configuration has a value, or none any more."""

    resource_type: Int8
    resource_name: String
    name: String
    value: String | None


class PartitionChangeRecord(Entry, key=5, versions="0-2", flexible="0+"):
    """The changed fields of a partition; an absent field is unchanged."""

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    isr: list[Int32] | None = field(default=None, tag=0, tagged="0+")
    leader: Int32 = field(default=-2, tag=1, tagged="0+")
    replicas: list[Int32] | None = field(default=None, tag=2, tagged="0+")
    removing_replicas: list[Int32] | None = field(default=None, tag=3, tagged="0+")
    adding_replicas: list[Int32] | None = field(default=None, tag=4, tagged="0+")
    leader_recovery_state: Int8 = field(default=-1, tag=5, tagged="0+")
    directories: list[Uuid] | None = field("1+", default=None, tag=8, tagged="1+")
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=6, tagged="2+")
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=7, tagged="2+")


class FenceBrokerRecord(Entry, key=7, versions="0", flexible="0+"):
    """A broker may not lead. Newer brokers are fenced by BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(Entry, key=8, versions="0", flexible="0+"):
    """A broker may lead again."""

    id: Int32
    epoch: Int64


class RemoveTopicRecord(Entry, key=9, versions="0", flexible="0+"):
    """A topic was deleted, with its partitions and its configuration."""

    topic_id: Uuid


class DelegationTokenRecord(Entry, key=10, versions="0", flexible="0+"):
    """A token exists, or lives longer."""

    owner: String
    requester: String
    renewers: list[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


class UserScramCredentialRecord(Entry, key=11, versions="0", flexible="0+"):
    """A user's SCRAM credential: salted, never the password."""

    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


class FeatureLevelRecord(Entry, key=12, versions="0", flexible="0+"):
    """The cluster works at this level of a feature from here on."""

    name: String
    feature_level: Int16


class ClientQuotaRecord(Entry, key=14, versions="0", flexible="0+"):
    """A quota is set or removed."""

    class Entity(Struct):
        entity_type: String
        entity_name: String | None

    entity: list[Entity]
    key: String
    value: Float64
    remove: Boolean


class ProducerIdsRecord(Entry, key=15, versions="0", flexible="0+"):
    """The producer ids below this one are assigned to brokers."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    next_producer_id: Int64


class BrokerRegistrationChangeRecord(Entry, key=17, versions="0-3", flexible="0+"):
    """What has changed about a broker."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(default=0, tag=0, tagged="0+")
    in_controlled_shutdown: Int8 = field("1+", default=0, tag=1, tagged="1+")
    log_dirs: list[Uuid] = field("2+", default=[], tag=2, tagged="2+")
    cordoned_log_dirs: list[Uuid] | None = field("3+", default=None, tag=3, tagged="3+")


class AccessControlEntryRecord(Entry, key=18, versions="0", flexible="0+"):
    """An access rule exists."""

    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class RemoveAccessControlEntryRecord(Entry, key=19, versions="0", flexible="0+"):
    """An access rule was deleted."""

    id: Uuid


class NoOpRecord(Entry, key=20, versions="0", flexible="0+"):
    """Nothing. It lets the controller see its own commits move on."""


class ZkMigrationStateRecord(Entry, key=21, versions="0", flexible="0+"):
    zk_migration_state: Int8


class RemoveUserScramCredentialRecord(Entry, key=22, versions="0", flexible="0+"):
    """A SCRAM credential was deleted."""

    name: String
    mechanism: Int8


class BeginTransactionRecord(Entry, key=23, versions="0", flexible="0+"):
    """The records up to EndTransactionRecord count together or not at all."""

    name: String | None = field(default=None, tag=0, tagged="0+")


class EndTransactionRecord(Entry, key=24, versions="0", flexible="0+"):
    """They count."""


class AbortTransactionRecord(Entry, key=25, versions="0", flexible="0+"):
    """They do not."""

    reason: String | None = field(default=None, tag=0, tagged="0+")


class RemoveDelegationTokenRecord(Entry, key=26, versions="0", flexible="0+"):
    """A token was deleted."""

    token_id: String


class RegisterControllerRecord(Entry, key=27, versions="0", flexible="0+"):
    """A controller has registered."""

    class EndPoint(Struct):
        name: String
        host: String
        port: Uint16
        security_protocol: Int16

    class Feature(Struct):
        name: String
        min_supported_version: Int16
        max_supported_version: Int16

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Boolean
    end_points: list[EndPoint]
    features: list[Feature]


class ClearElrRecord(Entry, key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic, or of all, are forgotten (KIP-966)."""

    topic_name: String
