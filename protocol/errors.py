"""Every error that Kafka's protocol knows, raised by meaning and mapped to its code once.

A handler raises `NotLeaderOrFollower(...)`; dispatch, or a place in a reply that has an error code per
partition, reads `.code`. Any other exception that reaches dispatch is an internal error.

A class is named after Kafka's own name for the error, and the name on the wire follows from it:
`NotLeaderOrFollower.name` is `NOT_LEADER_OR_FOLLOWER`. `retriable` says what Kafka's clients do with the code:
retry, perhaps after refreshing metadata, or give up.
"""

import re
from typing import ClassVar, Final

NONE: Final = 0
BY_CODE: "dict[int, type[KafkaError]]" = {}


class ProtocolError(ValueError):
    """Malformed bytes. The message names the field."""


class KafkaError(Exception):
    """An error with a code on the wire."""

    code: ClassVar[int]
    name: ClassVar[str]
    retriable: ClassVar[bool]

    def __init_subclass__(cls, *, code: int | None = None, retriable: bool = False, name: str | None = None) -> None:
        if code is None:
            return  # a special case of its parent, which has the parent's code on the wire
        cls.code = code
        cls.name = name or re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()
        cls.retriable = retriable
        assert code not in BY_CODE, f"{cls.__name__} and {BY_CODE[code].__name__} share code {code}"
        BY_CODE[code] = cls

    def __str__(self) -> str:
        return super().__str__() or (self.__doc__ or "").strip()


def error_class(code: int) -> type[KafkaError]:
    """The class of a received code; an unknown code means only that the request failed."""
    return BY_CODE.get(code, UnknownServerError)


class UnknownServerError(KafkaError, code=-1):
    """Something went wrong here that no other code describes."""


class OffsetOutOfRange(KafkaError, code=1):
    """The requested offset is outside of the log."""


class CorruptMessage(KafkaError, code=2, retriable=True):
    """A batch fails its checksum, has an impossible size, or is damaged in another way."""


class UnknownTopicOrPartition(KafkaError, code=3, retriable=True):
    """This broker has no such topic or partition."""


class InvalidFetchSize(KafkaError, code=4):
    """A fetch requested an invalid number of bytes."""


class LeaderNotAvailable(KafkaError, code=5, retriable=True):
    """The partition has no leader at the moment; one is being elected."""


class NotLeaderOrFollower(KafkaError, code=6, retriable=True):
    """This broker does not lead that partition, or holds no replica of it; refresh metadata."""


class RequestTimedOut(KafkaError, code=7, retriable=True):
    """The work was not finished within the time that the request allowed."""


class BrokerNotAvailable(KafkaError, code=8):
    """That broker is not alive."""


class ReplicaNotAvailable(KafkaError, code=9, retriable=True):
    """The replica that the request needs is not to be had on this broker."""


class MessageTooLarge(KafkaError, code=10):
    """A batch is larger than max.message.bytes."""


class StaleControllerEpoch(KafkaError, code=11):
    """The sender speaks for a controller that has been replaced."""


class OffsetMetadataTooLarge(KafkaError, code=12):
    """The text beside a committed offset is longer than offset.metadata.max.bytes."""


class NetworkException(KafkaError, code=13, retriable=True):
    """The connection broke before the answer came."""


class CoordinatorLoadInProgress(KafkaError, code=14, retriable=True):
    """The coordinator is still loading its partition; retry soon."""


class CoordinatorNotAvailable(KafkaError, code=15, retriable=True):
    """This group or transaction has no coordinator yet."""


class NotCoordinator(KafkaError, code=16, retriable=True):
    """Another broker coordinates this group or transaction."""


class InvalidTopic(KafkaError, code=17, name="INVALID_TOPIC_EXCEPTION"):
    """The topic's name is illegal, or the topic is internal and closed to clients."""


class RecordListTooLarge(KafkaError, code=18):
    """The batches of one partition together are larger than a segment may be."""


class NotEnoughReplicas(KafkaError, code=19, retriable=True):
    """Nothing was written: fewer replicas are in sync than min.insync.replicas demands."""


class NotEnoughReplicasAfterAppend(KafkaError, code=20, retriable=True):
    """The batch was written, and then too few replicas were in sync to call it safe."""


class InvalidRequiredAcks(KafkaError, code=21):
    """The acks of a produce request may only be -1, 0 or 1."""


class IllegalGeneration(KafkaError, code=22):
    """The group is at a newer generation than the member."""


class InconsistentGroupProtocol(KafkaError, code=23):
    """The member's protocol type, or every protocol it offers, fits none that the group uses."""


class InvalidGroupId(KafkaError, code=24):
    """A required group id is missing or empty."""


class UnknownMemberId(KafkaError, code=25):
    """The coordinator knows no member of that id in the group."""


class InvalidSessionTimeout(KafkaError, code=26):
    """The session timeout is outside of the broker's limits."""


class RebalanceInProgress(KafkaError, code=27):
    """The group is being rebalanced; the member must join again."""


class InvalidCommitOffsetSize(KafkaError, code=28):
    """The offset commit does not fit into a batch of the offsets topic."""


class TopicAuthorizationFailed(KafkaError, code=29):
    """The principal may not do this to that topic."""


class GroupAuthorizationFailed(KafkaError, code=30):
    """The principal may not do this to that group."""


class ClusterAuthorizationFailed(KafkaError, code=31):
    """The principal may not do this to the cluster."""


class InvalidTimestamp(KafkaError, code=32):
    """A record's timestamp is too far from the broker's clock."""


class UnsupportedSaslMechanism(KafkaError, code=33):
    """This SASL mechanism is not enabled on the listener."""


class IllegalSaslState(KafkaError, code=34):
    """The request does not belong to this moment of the SASL exchange."""


class UnsupportedVersion(KafkaError, code=35):
    """This version of the request is not spoken here."""


class TopicAlreadyExists(KafkaError, code=36):
    """A topic of that name is there already."""


class InvalidPartitions(KafkaError, code=37):
    """The number of partitions is zero, negative, or smaller than what the topic has."""


class InvalidReplicationFactor(KafkaError, code=38):
    """The replication factor is not positive, or there are too few brokers for it."""


class InvalidReplicaAssignment(KafkaError, code=39):
    """The replicas named by hand do not make a valid placement."""


class InvalidConfig(KafkaError, code=40):
    """A configuration key is unknown, or its value is not allowed."""


class NotController(KafkaError, code=41, retriable=True):
    """Another node is the active controller."""


class InvalidRequest(KafkaError, code=42):
    """The request contradicts itself or breaks a rule of its API."""


class UnsupportedForMessageFormat(KafkaError, code=43):
    """The batch format of this log does not support the requested operation."""


class PolicyViolation(KafkaError, code=44):
    """A policy that the operator installed forbids this."""


class OutOfOrderSequenceNumber(KafkaError, code=45):
    """An idempotent producer skipped a sequence number."""


class DuplicateSequenceNumber(KafkaError, code=46):
    """A batch with this sequence number was written before, and is no longer remembered."""


class InvalidProducerEpoch(KafkaError, code=47):
    """The producer's epoch is older than the newest one seen."""


class InvalidTxnState(KafkaError, code=48):
    """The transaction is in a state that does not allow this step."""


class InvalidProducerIdMapping(KafkaError, code=49):
    """The producer id is not the one of this transactional id."""


class InvalidTransactionTimeout(KafkaError, code=50):
    """The transaction timeout is larger than transaction.max.timeout.ms."""


class ConcurrentTransactions(KafkaError, code=51, retriable=True):
    """An earlier step of the same transaction is still under way."""


class TransactionCoordinatorFenced(KafkaError, code=52):
    """A marker came from a coordinator that has been replaced."""


class TransactionalIdAuthorizationFailed(KafkaError, code=53):
    """The principal may not use that transactional id."""


class SecurityDisabled(KafkaError, code=54):
    """The broker runs without an authorizer, so there are no rules to manage."""


class OperationNotAttempted(KafkaError, code=55):
    """Another part of the same request failed first, so this one was not attempted."""


class KafkaStorageError(KafkaError, code=56, retriable=True):
    """The disk of this log failed; the directory is offline."""


class LogDirNotFound(KafkaError, code=57):
    """The broker has no log directory of that name."""


class SaslAuthenticationFailed(KafkaError, code=58):
    """The credentials were refused."""


class UnknownProducerId(KafkaError, code=59):
    """Nothing is remembered of this producer on this partition."""


class ReassignmentInProgress(KafkaError, code=60):
    """The partition is being moved already."""


class DelegationTokenAuthDisabled(KafkaError, code=61):
    """Delegation tokens are switched off."""


class DelegationTokenNotFound(KafkaError, code=62):
    """No such delegation token is known."""


class DelegationTokenOwnerMismatch(KafkaError, code=63):
    """The principal neither owns nor may renew this delegation token."""


class DelegationTokenRequestNotAllowed(KafkaError, code=64):
    """A delegation token may not be requested on a connection of this kind."""


class DelegationTokenAuthorizationFailed(KafkaError, code=65):
    """The principal may not do this to that delegation token."""


class DelegationTokenExpired(KafkaError, code=66):
    """The delegation token is past its time."""


class InvalidPrincipalType(KafkaError, code=67):
    """Principals of that type are not supported."""


class NonEmptyGroup(KafkaError, code=68):
    """The group still has members."""


class GroupIdNotFound(KafkaError, code=69):
    """There is no group of that id."""


class FetchSessionIdNotFound(KafkaError, code=70, retriable=True):
    """The broker has forgotten this fetch session, or never knew it."""


class InvalidFetchSessionEpoch(KafkaError, code=71, retriable=True):
    """The fetch session's epoch differs from the epoch in the request."""


class ListenerNotFound(KafkaError, code=72, retriable=True):
    """The partition's leader has no listener of the name that the client came through."""


class TopicDeletionDisabled(KafkaError, code=73):
    """The operator switched off the deletion of topics."""


class FencedLeaderEpoch(KafkaError, code=74, retriable=True):
    """The client knows an older leader epoch than this broker; refresh metadata."""


class UnknownLeaderEpoch(KafkaError, code=75, retriable=True):
    """The client knows a newer leader epoch than this broker does yet."""


class UnsupportedCompressionType(KafkaError, code=76):
    """The client's version cannot read the codec of these batches."""


class StaleBrokerEpoch(KafkaError, code=77):
    """The broker has registered again since this epoch."""


class OffsetNotAvailable(KafkaError, code=78, retriable=True):
    """A fresh leader cannot name the end of its log until its high watermark has caught up."""


class MemberIdRequired(KafkaError, code=79):
    """The member must join once more, with the id in this response."""


class PreferredLeaderNotAvailable(KafkaError, code=80, retriable=True):
    """The first replica of the partition cannot lead it now."""


class GroupMaxSizeReached(KafkaError, code=81):
    """The group is as large as group.max.size allows."""


class FencedInstanceId(KafkaError, code=82):
    """Another member has taken over this group.instance.id."""


class EligibleLeadersNotAvailable(KafkaError, code=83, retriable=True):
    """No replica that may lead the partition is alive."""


class ElectionNotNeeded(KafkaError, code=84, retriable=True):
    """The preferred replica leads the partition already."""


class NoReassignmentInProgress(KafkaError, code=85):
    """There is no move of this partition to cancel."""


class GroupSubscribedToTopic(KafkaError, code=86):
    """The group reads this topic at the moment, so its offsets stay."""


class InvalidRecord(KafkaError, code=87):
    """A record breaks a rule of its topic, such as a missing key under compaction."""


class UnstableOffsetCommit(KafkaError, code=88, retriable=True):
    """An open transaction holds newer offsets for this group; retry after it has ended."""


class ThrottlingQuotaExceeded(KafkaError, code=89, retriable=True):
    """The principal has used up its quota of changes for now."""


class ProducerFenced(KafkaError, code=90):
    """A newer producer has taken over this transactional id."""


class ResourceNotFound(KafkaError, code=91):
    """The request names something that is not there."""


class DuplicateResource(KafkaError, code=92):
    """The request names the same thing twice."""


class UnacceptableCredential(KafkaError, code=93):
    """The credential is too weak, or of a form that is not allowed."""


class InconsistentVoterSet(KafkaError, code=94):
    """One of the two sides is not among the voters that the other expects."""


class InvalidUpdateVersion(KafkaError, code=95):
    """The partition has changed since the version that the sender saw."""


class FeatureUpdateFailed(KafkaError, code=96):
    """The change of a feature level could not be carried out."""


class PrincipalDeserializationFailure(KafkaError, code=97):
    """The principal inside a forwarded request cannot be read."""


class SnapshotNotFound(KafkaError, code=98):
    """There is no snapshot of that id."""


class PositionOutOfRange(KafkaError, code=99):
    """The position lies before the start or behind the end of the snapshot."""


class UnknownTopicId(KafkaError, code=100, retriable=True):
    """No topic of that id lives on this broker."""


class DuplicateBrokerRegistration(KafkaError, code=101):
    """Another process is alive under the same broker id."""


class BrokerIdNotRegistered(KafkaError, code=102):
    """No broker of that id has registered."""


class InconsistentTopicId(KafkaError, code=103, retriable=True):
    """The topic id of the log differs from the topic id in the request."""


class InconsistentClusterId(KafkaError, code=104):
    """The sender belongs to another cluster."""


class TransactionalIdNotFound(KafkaError, code=105):
    """The coordinator knows no such transactional id."""


class FetchSessionTopicIdError(KafkaError, code=106, retriable=True):
    """One fetch session mixes topics with and without ids."""


class IneligibleReplica(KafkaError, code=107):
    """The proposed in-sync set names a replica that may not be in it."""


class NewLeaderElected(KafkaError, code=108):
    """The change was taken, and it made another replica the leader."""


class OffsetMovedToTieredStorage(KafkaError, code=109):
    """The offset is no longer on the local disk, only in the object store."""


class FencedMemberEpoch(KafkaError, code=110):
    """The member's epoch is no longer valid; it must drop its partitions and join afresh."""


class UnreleasedInstanceId(KafkaError, code=111):
    """The static member that holds this instance id has not left yet."""


class UnsupportedAssignor(KafkaError, code=112):
    """The group's assignor is not known here, or not in that version."""


class StaleMemberEpoch(KafkaError, code=113):
    """The member's epoch is behind; the response to its next heartbeat has the current one."""


class MismatchedEndpointType(KafkaError, code=114):
    """A request for a controller reached a broker, or the reverse."""


class UnsupportedEndpointType(KafkaError, code=115):
    """Endpoints of that type are not known here."""


class UnknownControllerId(KafkaError, code=116):
    """No controller of that id has registered."""


class UnknownSubscriptionId(KafkaError, code=117):
    """The client pushes metrics for a subscription that is not the current one."""


class TelemetryTooLarge(KafkaError, code=118):
    """The pushed metrics are larger than telemetry.max.bytes."""


class InvalidRegistration(KafkaError, code=119):
    """The controller refuses the broker's registration."""


class TransactionAbortable(KafkaError, code=120):
    """The transaction can only be aborted now; the producer may go on after that."""


class InvalidRecordState(KafkaError, code=121):
    """The record is not in a state in which it can be acknowledged so."""


class ShareSessionNotFound(KafkaError, code=122, retriable=True):
    """The broker has forgotten this share session, or never knew it."""


class InvalidShareSessionEpoch(KafkaError, code=123, retriable=True):
    """The share session's epoch differs from the epoch in the request."""


class FencedStateEpoch(KafkaError, code=124):
    """The state of the share group has moved on to a newer epoch."""


class InvalidVoterKey(KafkaError, code=125):
    """The receiver is a voter of another id or directory than the one addressed."""


class DuplicateVoter(KafkaError, code=126):
    """That voter belongs to the quorum already."""


class VoterNotFound(KafkaError, code=127):
    """That voter does not belong to the quorum."""


class InvalidRegularExpression(KafkaError, code=128):
    """The pattern of the subscription is not a valid expression."""


class RebootstrapRequired(KafkaError, code=129):
    """The client's view of the cluster is too old; it must start again from its bootstrap list."""


class StreamsInvalidTopology(KafkaError, code=130):
    """The topology of the streams application is not sound."""


class StreamsInvalidTopologyEpoch(KafkaError, code=131):
    """The topology's epoch is one that the group does not accept."""


class StreamsTopologyFenced(KafkaError, code=132):
    """The group has moved on to a newer topology."""


class ShareSessionLimitReached(KafkaError, code=133, retriable=True):
    """The broker keeps as many share sessions as it may."""
