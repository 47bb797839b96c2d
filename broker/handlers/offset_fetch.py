"""OffsetFetch (9): where groups are in partitions. A partition without a commit is at -1, and so is everything of a
group that does not exist.

v1 an error of the group stands at each partition · v2 null asks for all topics; an error of its own · v5 leader epochs
· v6 flexible · v7 require_stable: what an open transaction may change is refused (UNSTABLE_OFFSET_COMMIT) · v8 many
groups · v9 next-generation groups · v10 topics by id
"""

from typing import TYPE_CHECKING, Final

from trioka.coordinator.offset_requests import fetch_refused
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call

Group = OffsetFetchResponse.Group

FIRST_WITH_MANY_GROUPS: Final = 8


def refuse(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    groups = [fetch_refused(asked, error, FIRST_WITH_MANY_GROUPS) for asked in request.groups]
    return OffsetFetchResponse(error_code=0 if groups else error.code, groups=groups)


@handles(OffsetFetchRequest, refuse=refuse)
async def offset_fetch(broker: "Broker", call: "Call", request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version < FIRST_WITH_MANY_GROUPS:
        return _alone(await _fetch(broker, call, _only(request), request.require_stable))
    return OffsetFetchResponse(
        groups=[await _fetch(broker, call, asked, request.require_stable) for asked in request.groups]
    )


async def _fetch(broker: "Broker", call: "Call", asked: OffsetFetchRequest.Group, require_stable: bool) -> Group:
    try:
        return await broker.groups.look(
            asked.group_id,
            lambda groups: groups.fetch_offsets(asked, require_stable=require_stable, version=call.version),
        )
    except KafkaError as error:
        return fetch_refused(asked, error, call.version)


def _only(request: OffsetFetchRequest) -> OffsetFetchRequest.Group:
    """The one group of a version that knows no more."""
    topics = request.topics
    return OffsetFetchRequest.Group(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequest.Group.Topic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ],
    )


def _alone(group: Group) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.Topic.Partition(
                        partition_index=told.partition_index,
                        committed_offset=told.committed_offset,
                        committed_leader_epoch=told.committed_leader_epoch,
                        metadata=told.metadata,
                        error_code=told.error_code,
                    )
                    for told in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
