"""DescribeUserScramCredentials (50): returns the SCRAM mechanisms and iterations of users, without their keys."""

from collections import Counter
from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import DuplicateResource, KafkaError, ResourceNotFound
from trioka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Result = DescribeUserScramCredentialsResponse.Result


def error_response(
    request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    """Builds the response as Apache Kafka does: its results do not name the users."""
    result = Result(user="", error_code=error.code, error_message=None, credential_infos=[])
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=error.code, error_message=None, results=[result] * len(request.users or ())
    )


@handles(DescribeUserScramCredentialsRequest, error_response=error_response)
def describe_user_scram_credentials(
    broker: "Broker", call: "Call", request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """No user, or no list of users, means all users."""
    broker.guard.must(call, AclOperation.DESCRIBE)
    infos: dict[str, list[Result.CredentialInfo]] = {}
    for name, mechanism, credential in broker.metadata.access.scram_users():
        info = Result.CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        infos.setdefault(name, []).append(info)
    times = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message="",
        results=[_result(name, count, infos.get(name)) for name, count in (times or dict.fromkeys(infos, 1)).items()],
    )


def _result(name: str, times: int, infos: list[Result.CredentialInfo] | None) -> Result:
    error: type[KafkaError] | None = None
    message = None
    if times > 1:
        error, message = DuplicateResource, "Cannot describe SCRAM credentials for the same user twice in a single"
        message += f" request: {name}"
    elif infos is None:
        error, message = ResourceNotFound, f"Attempt to describe a user credential that does not exist: {name}"
    if error is not None:
        return Result(user=name, error_code=error.code, error_message=message, credential_infos=[])
    return Result(user=name, error_code=0, error_message="", credential_infos=infos or [])
