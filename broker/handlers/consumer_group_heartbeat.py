"""ConsumerGroupHeartbeat (68): the consumer group protocol (KIP-848). Members join, reconcile their assignments and
leave by heartbeats.

v1 subscription by regular expression; the member chooses its id
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import (
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from trioka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of, has_consumer_groups
from ..security.guard import GROUP, TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending


DENIED: Final = (GroupAuthorizationFailed, TopicAuthorizationFailed)  # Kafka sends no message with these


def error_response(request: ConsumerGroupHeartbeatRequest, error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=None if isinstance(error, DENIED) else str(error),
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


@handles(ConsumerGroupHeartbeatRequest, error_response=error_response)
def consumer_group_heartbeat(
    broker: "Broker", call: "Call", request: ConsumerGroupHeartbeatRequest
) -> "Response | Pending":
    if not has_consumer_groups(broker):
        raise UnsupportedVersion("consumer groups are not enabled")
    broker.guard.must(call, AclOperation.READ, GROUP, request.group_id)
    names = request.subscribed_topic_names or ()
    allowed = broker.guard.allowed(call, AclOperation.DESCRIBE, TOPIC, names)
    if not all(name in allowed for name in names):
        raise TopicAuthorizationFailed()
    client = client_of(call)
    return broker.groups.submit(
        call,
        request,
        error_response,
        request.group_id,
        lambda groups, request_id, now: groups.consumer_group_heartbeat(request_id, request, client, now),
    )
