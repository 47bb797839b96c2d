"""How a failure reaches a caller: a google.rpc code, a sentence, and a `Failure` with Kafka's code.

`Refused` is what the gateway itself refuses; the code of an error of Kafka is looked up in CODES. Every other exception
is a bug: it is logged, and the caller gets INTERNAL without details.

The detail travels in the trailing metadata `grpc-status-details-bin`, a google.rpc.Status:

    1  code      varint
    2  message   string
    3  details   google.protobuf.Any: 1 type_url, 2 value
"""

from collections.abc import Mapping
from typing import Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from trioka.protocol import errors
from trioka.protocol.errors import KafkaError

from .v1 import types_pb2

DETAILS: Final = "grpc-status-details-bin"
MAX_SENTENCE: Final = 1000  # characters; a broker's message may hold much of a request
Code: Final = grpc.StatusCode

_BY_CODE: Final[Mapping[grpc.StatusCode, tuple[type[KafkaError], ...]]] = {
    Code.NOT_FOUND: (
        errors.UnknownTopicOrPartition,
        errors.UnknownTopicId,
        errors.GroupIdNotFound,
        errors.InconsistentTopicId,
    ),
    Code.ALREADY_EXISTS: (errors.TopicAlreadyExists,),
    Code.UNAUTHENTICATED: (
        errors.SaslAuthenticationFailed,
        errors.UnsupportedSaslMechanism,
        errors.IllegalSaslState,
    ),
    Code.PERMISSION_DENIED: (
        errors.TopicAuthorizationFailed,
        errors.GroupAuthorizationFailed,
        errors.ClusterAuthorizationFailed,
        errors.TransactionalIdAuthorizationFailed,
        errors.DelegationTokenAuthorizationFailed,
    ),
    Code.RESOURCE_EXHAUSTED: (
        errors.MessageTooLarge,
        errors.RecordListTooLarge,
        errors.ThrottlingQuotaExceeded,
        errors.GroupMaxSizeReached,
    ),
    Code.OUT_OF_RANGE: (errors.OffsetOutOfRange, errors.OutOfOrderSequenceNumber),
    Code.ABORTED: (
        errors.InvalidProducerEpoch,
        errors.ProducerFenced,
        errors.TransactionCoordinatorFenced,
        errors.InvalidTxnState,
        errors.FencedInstanceId,
    ),
    Code.INVALID_ARGUMENT: (
        errors.InvalidTopic,
        errors.InvalidPartitions,
        errors.InvalidReplicationFactor,
        errors.InvalidConfig,
        errors.InvalidRequest,
        errors.InvalidRecord,
        errors.InvalidTimestamp,
        errors.InvalidGroupId,
        errors.CorruptMessage,
        errors.UnsupportedForMessageFormat,
        errors.UnsupportedCompressionType,
        errors.OffsetMetadataTooLarge,
    ),
    Code.FAILED_PRECONDITION: (
        errors.NonEmptyGroup,
        errors.GroupSubscribedToTopic,
        errors.PolicyViolation,
        errors.TopicDeletionDisabled,
        errors.UnknownMemberId,
        errors.IllegalGeneration,
    ),
    Code.UNIMPLEMENTED: (errors.UnsupportedVersion,),
}
CODES: Final = {each.code: code for code, some in _BY_CODE.items() for each in some}


class Refused(Exception):
    """The gateway refuses a request. The message is one sentence for the caller."""

    def __init__(self, code: grpc.StatusCode, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = retriable


def code_of(error: Exception) -> grpc.StatusCode:
    if isinstance(error, Refused):
        return error.code
    if isinstance(error, KafkaError):
        known = CODES.get(error.code)
        if known is not None:
            return known
        return Code.UNAVAILABLE if error.retriable else Code.UNKNOWN
    if isinstance(error, errors.ProtocolError):
        return Code.INVALID_ARGUMENT
    return Code.INTERNAL


def failure_of(error: Exception) -> types_pb2.Failure:
    """The `Failure` of an exception that `code_of` maps."""
    if isinstance(error, Refused):
        return types_pb2.Failure(name=error.code.name, message=_sentence(str(error)), retriable=error.retriable)
    if isinstance(error, KafkaError):
        # An unknown topic is retriable for a client of Kafka, whose metadata may be stale; the gateway's are not.
        retriable = (
            error.retriable and code_of(error) is not Code.NOT_FOUND and not isinstance(error, errors.CorruptMessage)
        )
        return types_pb2.Failure(
            kafka_code=error.code, name=error.name, message=_sentence(str(error)), retriable=retriable
        )
    if isinstance(error, errors.ProtocolError):
        return types_pb2.Failure(name=Code.INVALID_ARGUMENT.name, message=_sentence(str(error)))
    return types_pb2.Failure(name=Code.INTERNAL.name, message="An internal error; the gateway's log has it.")


def status_details(code: grpc.StatusCode, failure: types_pb2.Failure) -> bytes:
    """A serialized google.rpc.Status with the failure as its detail."""
    detail = AnyMessage()
    detail.Pack(failure)
    message, packed = failure.message.encode(), detail.SerializeToString()
    number: int = code.value[0]
    return b"".join(
        (b"\x08", _varint(number), b"\x12", _varint(len(message)), message, b"\x1a", _varint(len(packed)), packed)
    )


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _sentence(text: str) -> str:
    """One line that ends with a full stop. It may begin with the name of a topic, so letters stay as they are."""
    text = " ".join(text.split())[:MAX_SENTENCE]
    return text if text.endswith((".", "!", "?")) else f"{text}."
