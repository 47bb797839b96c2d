"""OffsetCommit (8): a group's place in partitions is kept.

A commit without a member and with generation -1 comes from outside a group, and is taken if the group has no members;
the group need not exist.

v5 no retention time · v6 leader epochs · v7 static members · v8 flexible · v9 next-generation groups, and what they
say: STALE_MEMBER_EPOCH, GROUP_ID_NOT_FOUND · v10 topics by id
"""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from trioka.protocol.schema import Response

from ..group_shards import client_of
from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call, Later


def refuse(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.Topic.Partition(partition_index=asked.partition_index, error_code=error.code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(OffsetCommitRequest, refuse=refuse)
def offset_commit(broker: "Broker", call: "Call", request: OffsetCommitRequest) -> "Response | Later":
    client = client_of(call)
    return broker.groups.ask(
        call,
        request,
        refuse,
        request.group_id,
        lambda groups, ticket, now: groups.commit_offsets(ticket, request, client, now),
    )
