"""CreatePartitions (37): adds partitions to topics.

Assignments, if any, are those of the new partitions, in order.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

from trioka.cluster.decision import ItemResult
from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

from ..api import handles
from ..security.guard import TOPIC
from .mutation_quotas import charge_of
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = CreatePartitionsResponse.Topic

FIRST_STRICT_VERSION: Final = 3  # from here on clients know THROTTLING_QUOTA_EXCEEDED


def error_response(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    outcome = ItemResult.of(error)
    return CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            TopicResult(name=topic.name, error_code=outcome.code, error_message=outcome.message)
            for topic in request.topics
        ],
    )


@handles(CreatePartitionsRequest, error_response=error_response, forwards=True)
async def create_partitions(
    broker: "Broker", call: "Call", request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    names = {name for name, count in times.items() if count == 1}  # the controller rejects topics that are listed twice
    allowed = broker.guard.allowed(call, AclOperation.ALTER, TOPIC, names)
    denied = [topic.name for topic in request.topics if topic.name in names and topic.name not in allowed]
    request.topics[:] = [topic for topic in request.topics if topic.name not in denied]
    check_timeout(request.timeout_ms)
    charge = charge_of(broker, call, FIRST_STRICT_VERSION)
    decision = await broker.quorum.change(
        lambda controller: controller.create_partitions(
            request.topics, validate_only=request.validate_only, charge=charge
        )
    )
    return CreatePartitionsResponse(
        throttle_time_ms=charge.throttle_time_ms,
        results=[
            TopicResult(name=reply.name, error_code=reply.outcome.code, error_message=reply.outcome.message)
            for reply in decision.replies
        ]
        + [TopicResult(name=name, error_code=TopicAuthorizationFailed.code, error_message=None) for name in denied],
    )
