"""CreatePartitions (37): topics grow. They never shrink.

The assignments, where they are given, are those of the new partitions, in their order.
"""

from collections import Counter
from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.cluster.decision import Outcome
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

from ..api import handles
from ..security.guard import TOPIC
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = CreatePartitionsResponse.Topic


def refuse(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    outcome = Outcome.of(error)
    return CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            Told(name=topic.name, error_code=outcome.code, error_message=outcome.message) for topic in request.topics
        ],
    )


@handles(CreatePartitionsRequest, refuse=refuse, forwards=True)
async def create_partitions(
    broker: "Broker", call: "Call", request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    names = {name for name, count in times.items() if count == 1}  # the others are refused for being named twice
    allowed = broker.guard.allowed(call, Operation.ALTER, TOPIC, names)
    denied = [topic.name for topic in request.topics if topic.name in names and topic.name not in allowed]
    request.topics[:] = [topic for topic in request.topics if topic.name not in denied]
    check_timeout(request.timeout_ms)
    decision = await broker.quorum.change(
        lambda controller: controller.create_partitions(request.topics, validate_only=request.validate_only)
    )
    return CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            Told(name=reply.name, error_code=reply.outcome.code, error_message=reply.outcome.message)
            for reply in decision.replies
        ]
        + [Told(name=name, error_code=TopicAuthorizationFailed.code, error_message=None) for name in denied],
    )
