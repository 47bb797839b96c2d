"""Errors of librdkafka as errors of Kafka's protocol: its own codes are negative, the broker's are Kafka's."""

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError as RdError
from confluent_kafka import KafkaException

from trioka.protocol import errors
from trioka.protocol.errors import KafkaError, error_class

LOCAL: Final[Mapping[int, type[KafkaError]]] = {
    RdError._MSG_TIMED_OUT: errors.RequestTimedOut,
    RdError._TIMED_OUT: errors.RequestTimedOut,
    RdError._TIMED_OUT_QUEUE: errors.RequestTimedOut,
    RdError._TRANSPORT: errors.NetworkException,
    RdError._ALL_BROKERS_DOWN: errors.NetworkException,
    RdError._RESOLVE: errors.NetworkException,
    RdError._SSL: errors.NetworkException,
    RdError._AUTHENTICATION: errors.SaslAuthenticationFailed,
    RdError._UNKNOWN_TOPIC: errors.UnknownTopicOrPartition,
    RdError._UNKNOWN_PARTITION: errors.UnknownTopicOrPartition,
    RdError._FENCED: errors.ProducerFenced,
    RdError._PURGE_QUEUE: errors.NetworkException,
    RdError._PURGE_INFLIGHT: errors.NetworkException,
    RdError._QUEUE_FULL: errors.ThrottlingQuotaExceeded,
    RdError._STATE: errors.InvalidTxnState,
}


def as_kafka_error(error: "RdError | KafkaException", what: str) -> KafkaError:
    """`what` names the object, such as a topic."""
    found: RdError = error.args[0] if isinstance(error, KafkaException) else error
    code = found.code()
    kind = LOCAL.get(code) or (error_class(code) if code > 0 else errors.UnknownServerError)
    return kind(f"{what}: {found.str()}")
