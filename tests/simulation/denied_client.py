"""A client whose address a rule denies the deletion of the topic that all others use. It sends the request to any
broker, over and over: most of them forward it to the active controller, and the node that decides must deny it."""

from typing import TYPE_CHECKING

from simulation.client import PASSES, PLAIN, SimClient

from trioka.cluster.acls import CLUSTER_NAME, AclOperation, AclPermission, AclResourceType
from trioka.protocol.errors import NONE, TopicAuthorizationFailed
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.primitives import NULL_UUID

if TYPE_CHECKING:
    from simulation.brokers_world import BrokersWorld

HOST, JAVAS_SPELLING = "fd00::7", "fd00:0:0:0:0:0:0:7"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

Rule = CreateAclsRequest.Creation


def rules() -> list[Rule]:
    """All users may do everything, except delete the topic from that address. DELETE on the cluster would allow
    deleting every topic."""
    return [
        _rule(kind, name, *what)
        for kind, name in ((AclResourceType.TOPIC, PLAIN), (AclResourceType.CLUSTER, CLUSTER_NAME))
        for what in (
            (AclOperation.ALL, AclPermission.ALLOW, "*"),
            (AclOperation.DELETE, AclPermission.DENY, JAVAS_SPELLING),
        )
    ]


def _rule(kind: AclResourceType, name: str, operation: AclOperation, permission: AclPermission, host: str) -> Rule:
    return Rule(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:*",
        host=host,
        operation=operation,
        permission_type=permission,
    )


async def make_rules(admin: SimClient) -> None:
    """Returns when they hold."""
    while True:
        response = await admin.ask(admin.any_broker(), CreateAclsRequest(creations=rules()), 3)
        codes = [] if response is None else [result.error_code for result in response.results]
        if codes and set(codes) <= {NONE}:
            return
        for code in set(codes) - PASSES - {NONE}:
            admin.surprise("create rules", code)
        admin.world.check()
        await admin.pause()


class Denied(SimClient):
    def __init__(self, world: "BrokersWorld") -> None:
        super().__init__(world, "denied", HOST)

    async def run(self) -> None:
        topic = DeleteTopicsRequest.Topic(name=PLAIN, topic_id=NULL_UUID)
        request = DeleteTopicsRequest(topics=[topic], timeout_ms=1000)
        while True:
            response = await self.ask(self.any_broker(), request, 6)
            code = None if response is None else response.responses[0].error_code
            if code == NONE:
                self.world.violate(f"{self.name} has deleted {PLAIN}, which is denied to {HOST}")
            elif code is not None and code != TopicAuthorizationFailed.code and code not in PASSES:
                self.surprise(f"delete {PLAIN}", code)
            await self.pause(0.5)
