"""Errors of REST. A code of five digits begins with the HTTP status."""

from typing import Final

import grpc

from trioka.protocol.errors import KafkaError

from ..coded_error import CodedError
from ..failures import Refused, code_of, failure_of
from ..registry.errors import RegistryError

NO_TOPIC, NO_PARTITION, NO_INSTANCE, NO_SCHEMA = 40401, 40402, 40403, 40403
INSTANCE_EXISTS, WRONG_SUBSCRIPTION = 40902, 40903
WRONG_FORMAT: Final = 40601
BAD_RECORDS: Final = 42203
BAD_INSTANCE_CONFIG: Final = 42204
RANGE: Final = 41601
KAFKA_ERROR, KAFKA_RETRIABLE = 50002, 50003

STATUS: Final = {
    grpc.StatusCode.NOT_FOUND: NO_TOPIC,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.OUT_OF_RANGE: RANGE,
    grpc.StatusCode.INVALID_ARGUMENT: 422,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: KAFKA_RETRIABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: KAFKA_RETRIABLE,
}


class RestError(CodedError):
    """A request that REST refuses."""


def as_rest_error(error: Exception) -> RestError | None:
    """None for a bug, which is logged and answered without details."""
    if isinstance(error, RestError):
        return error
    if isinstance(error, RegistryError):
        return RestError(error.code, error.message)
    code = code_of(error)
    if code is grpc.StatusCode.INTERNAL:
        return None
    fallback = KAFKA_ERROR if isinstance(error, KafkaError | Refused) else 422
    message = failure_of(error).message
    return RestError(STATUS.get(code, fallback), message[:1].upper() + message[1:])
