"""AdminService: topics, groups and offsets, by requests of Kafka's protocol."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import grpc

from ..administration import groups, topics
from ..clients import CallerClients
from ..failures import Refused
from ..kafka.cluster import Cluster
from ..v1 import admin_pb2, admin_pb2_grpc
from .call import Calls

R = TypeVar("R")
INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def _on_cluster(
        self, work: Callable[[Cluster, Any], Awaitable[R]], method: str, request: Any, context: Any
    ) -> R:
        async def with_clients(clients: CallerClients) -> R:
            for field in ("topic", "group"):
                if getattr(request, field, "named") == "":
                    raise Refused(INVALID, f"{field} is empty")
            return await work(clients.cluster, request)

        return await self._calls.unary(method, context, with_clients)

    async def ListTopics(self, request: admin_pb2.ListTopicsRequest, context: Any) -> admin_pb2.ListTopicsResponse:
        return await self._on_cluster(topics.list_topics, "ListTopics", request, context)

    async def DescribeTopic(
        self, request: admin_pb2.DescribeTopicRequest, context: Any
    ) -> admin_pb2.DescribeTopicResponse:
        return await self._on_cluster(topics.describe_topic, "DescribeTopic", request, context)

    async def CreateTopic(self, request: admin_pb2.CreateTopicRequest, context: Any) -> admin_pb2.CreateTopicResponse:
        return await self._on_cluster(topics.create_topic, "CreateTopic", request, context)

    async def DeleteTopic(self, request: admin_pb2.DeleteTopicRequest, context: Any) -> admin_pb2.DeleteTopicResponse:
        return await self._on_cluster(topics.delete_topic, "DeleteTopic", request, context)

    async def ListOffsets(self, request: admin_pb2.ListOffsetsRequest, context: Any) -> admin_pb2.ListOffsetsResponse:
        return await self._on_cluster(topics.list_offsets, "ListOffsets", request, context)

    async def ListGroups(self, request: admin_pb2.ListGroupsRequest, context: Any) -> admin_pb2.ListGroupsResponse:
        return await self._on_cluster(groups.list_groups, "ListGroups", request, context)

    async def DescribeGroup(
        self, request: admin_pb2.DescribeGroupRequest, context: Any
    ) -> admin_pb2.DescribeGroupResponse:
        return await self._on_cluster(groups.describe_group, "DescribeGroup", request, context)

    async def DeleteGroup(self, request: admin_pb2.DeleteGroupRequest, context: Any) -> admin_pb2.DeleteGroupResponse:
        return await self._on_cluster(groups.delete_group, "DeleteGroup", request, context)

    async def ListGroupOffsets(
        self, request: admin_pb2.ListGroupOffsetsRequest, context: Any
    ) -> admin_pb2.ListGroupOffsetsResponse:
        return await self._on_cluster(groups.list_group_offsets, "ListGroupOffsets", request, context)

    async def CommitGroupOffsets(
        self, request: admin_pb2.CommitGroupOffsetsRequest, context: Any
    ) -> admin_pb2.CommitGroupOffsetsResponse:
        return await self._on_cluster(groups.commit_group_offsets, "CommitGroupOffsets", request, context)

    async def DeleteGroupOffsets(
        self, request: admin_pb2.DeleteGroupOffsetsRequest, context: Any
    ) -> admin_pb2.DeleteGroupOffsetsResponse:
        return await self._on_cluster(groups.delete_group_offsets, "DeleteGroupOffsets", request, context)
