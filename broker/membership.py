"""How this broker joins its cluster, and what it tells the controller about itself afterwards.

register     who and where it is; the answer is its epoch, and it is fenced
heartbeat    it has caught up with the metadata, and is let in
recovered    it has looked at the logs that an unclean stop left, and knows what is in them
directories  which of its log directories each replica is in, where the controller left that to it
leave        it stops: it leads nothing any more, and is fenced, so that its next life need not wait for the session of
             this one to end
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trioka.cluster.metadata_log import DIRECTORIES_SINCE
from trioka.cluster.partition import Partition, RecoveryState
from trioka.cluster.topics import Topic
from trioka.protocol.messages.alter_partition import AlterPartitionRequest
from trioka.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from trioka.protocol.messages.broker_registration import BrokerRegistrationRequest
from trioka.storage.layout import TopicPartition

from .config.addresses import Endpoint

if TYPE_CHECKING:
    from .broker import Broker


async def join(broker: "Broker", advertised: Iterable[Endpoint]) -> int:
    """Registers the broker and lets it in. Its epoch."""
    registration = _registration(broker, advertised)
    registered = await broker.quorum.change(
        lambda controller: controller.register_broker(
            registration, next_offset=broker.quorum.log.log_end_offset, has_session=False
        )
    )
    (epoch,) = registered.replies
    heartbeat = BrokerHeartbeatRequest(
        broker_id=broker.node_id,
        broker_epoch=epoch,
        current_metadata_offset=broker.metadata.offset,
        want_fence=False,
        want_shut_down=False,
    )
    await broker.quorum.change(lambda controller: controller.heartbeat(heartbeat))
    await _say_recovered(broker, epoch)
    await say_directories(broker, epoch)
    return epoch


async def leave(broker: "Broker") -> None:
    """The controlled shutdown. The controller takes the leaderships away first, and lets the broker go then."""
    told = BrokerHeartbeatRequest(
        broker_id=broker.node_id,
        broker_epoch=broker.broker_epoch,
        current_metadata_offset=broker.metadata.offset,
        want_fence=False,
        want_shut_down=True,
    )
    while True:
        (reply,) = (await broker.quorum.change(lambda controller: controller.heartbeat(told))).replies
        if reply.should_shut_down:
            return


def _registration(broker: "Broker", advertised: Iterable[Endpoint]) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker.node_id,
        cluster_id=broker.cluster_id,
        incarnation_id=broker.random.randbytes(16),
        listeners=[
            BrokerRegistrationRequest.Listener(
                name=endpoint.name, host=endpoint.host, port=endpoint.port, security_protocol=endpoint.protocol
            )
            for endpoint in advertised
        ],
        features=[
            BrokerRegistrationRequest.Feature(
                name=feature.name, min_supported_version=feature.first, max_supported_version=feature.last
            )
            for feature in broker.supported_features.values()
        ],
        rack=broker.node.rack,
        log_dirs=list(broker.identity.directory_ids),
        previous_broker_epoch=broker.identity.previous_broker_epoch,
    )


async def _say_recovered(broker: "Broker", epoch: int) -> None:
    """After an unclean stop the controller takes partitions for damaged until their leader says otherwise. Recovery has
    run when the logs were opened, so there is nothing to wait for."""
    recovering = [
        (topic, partition)
        for topic, partition in broker.metadata.topics.partitions()
        if partition.leader == broker.node_id and partition.leader_recovery_state is RecoveryState.RECOVERING
    ]
    if not recovering:
        return
    request = AlterPartitionRequest(
        broker_id=broker.node_id,
        broker_epoch=epoch,
        topics=[
            AlterPartitionRequest.Topic(topic_id=topic.topic_id, partitions=[_recovered(partition, epoch)])
            for topic, partition in recovering
        ],
    )
    await broker.quorum.change(lambda controller: controller.alter_partition(request))


def _recovered(partition: Partition, epoch: int) -> AlterPartitionRequest.Topic.Partition:
    told = AlterPartitionRequest.Topic.Partition
    return told(
        partition_index=partition.index,
        leader_epoch=partition.leader_epoch,
        new_isr_with_epochs=[told.NewIsrWithEpoch(broker_id=node, broker_epoch=epoch) for node in partition.isr],
        leader_recovery_state=RecoveryState.RECOVERED,
        partition_epoch=partition.partition_epoch,
    )


async def say_directories(broker: "Broker", epoch: int) -> None:
    """Where each replica is, if the metadata does not know it, or knows it otherwise. An older cluster never asks."""
    if broker.metadata.features.metadata_version < DIRECTORIES_SINCE:
        return
    moved: dict[bytes, list[tuple[Topic, Partition]]] = {}
    places = _places(broker)
    for topic, partition in broker.metadata.topics.partitions():
        place = places.get(TopicPartition(topic.name, partition.index))
        if place is not None and broker.node_id in partition.replicas and partition.directory(broker.node_id) != place:
            moved.setdefault(place, []).append((topic, partition))
    if not moved:
        return
    request = AssignReplicasToDirsRequest(
        broker_id=broker.node_id,
        broker_epoch=epoch,
        directories=[
            AssignReplicasToDirsRequest.Directory(id=place, topics=_topics(found))
            for place, found in sorted(moved.items())
        ],
    )
    await broker.quorum.change(lambda controller: controller.assign_replicas_to_directories(request))


def _places(broker: "Broker") -> dict[TopicPartition, bytes]:
    return {
        name: directory.meta.directory_id
        for directory in broker.directories
        for name in directory.logs
        if directory.meta is not None and directory.meta.directory_id is not None
    }


def _topics(found: Sequence[tuple[Topic, Partition]]) -> list[AssignReplicasToDirsRequest.Directory.Topic]:
    told = AssignReplicasToDirsRequest.Directory.Topic
    by_topic: dict[bytes, list[int]] = {}
    for topic, partition in found:
        by_topic.setdefault(topic.topic_id, []).append(partition.index)
    return [
        told(topic_id=topic_id, partitions=[told.Partition(partition_index=index) for index in indexes])
        for topic_id, indexes in by_topic.items()
    ]
