"""One request for each served API, in any of its versions: the requests that an unauthorized client could send.

All are about the topic `orders`, the group `billing` and the transactional id `copier`, or about the cluster itself;
`topic_id` finds the id of a topic, for the versions that name topics by id. tests/broker/security/test_guard.py sends
them to one broker, compat-tests/test_acl_enforcement.py to two.
"""

from collections.abc import Callable

from trioka.broker.api import BROKER, SUPPORTED_APIS
from trioka.protocol.batch import build
from trioka.protocol.messages import add_offsets_to_txn as aot
from trioka.protocol.messages import add_partitions_to_txn as apt
from trioka.protocol.messages.add_raft_voter import AddRaftVoterRequest
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.alter_configs import AlterConfigsRequest
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_acls import DeleteAclsRequest
from trioka.protocol.messages.delete_groups import DeleteGroupsRequest
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.describe_acls import DescribeAclsRequest
from trioka.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest
from trioka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from trioka.protocol.messages.describe_producers import DescribeProducersRequest
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest
from trioka.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from trioka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from trioka.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest
from trioka.protocol.messages.end_txn import EndTxnRequest
from trioka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.join_group import JoinGroupRequest
from trioka.protocol.messages.leave_group import LeaveGroupRequest
from trioka.protocol.messages.list_config_resources import ListConfigResourcesRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from trioka.protocol.messages.list_transactions import ListTransactionsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_delete import OffsetDeleteRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest
from trioka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from trioka.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from trioka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest
from trioka.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from trioka.protocol.messages.unregister_broker import UnregisterBrokerRequest
from trioka.protocol.messages.update_features import UpdateFeaturesRequest
from trioka.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.record import Record
from trioka.protocol.schema import Request

TOPIC, GROUP, TRANSACTION = "orders", "billing", "copier"
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
FIRST_PRODUCE = 3  # version; earlier versions are advertised but not served

Ids = Callable[[str], bytes]


def request_for(key: int, version: int, topic_id: Ids) -> Request:
    """A request of that API, which could be granted."""
    return REQUESTS[key](version, topic_id)


def versions() -> list[tuple[int, int]]:
    """Every API in every version that is served to clients."""
    return [
        (key, version)
        for key, served in SUPPORTED_APIS.items()
        if served.listeners & BROKER
        for version in range(max(served.first, FIRST_PRODUCE if key == 0 else 0), served.last + 1)
    ]


def _produce(version: int, topic_id: Ids) -> Request:
    records = bytearray(build([Record(0, 0, None, b"wish")]))
    topic = ProduceRequest.Topic(
        name=TOPIC,
        topic_id=topic_id(TOPIC) if version >= 13 else NULL_UUID,
        partition_data=[ProduceRequest.Topic.Partition(index=0, records=records)],
    )
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def _fetch(version: int, topic_id: Ids) -> Request:
    topic = FetchRequest.Topic(
        topic=TOPIC,
        topic_id=topic_id(TOPIC) if version >= 13 else NULL_UUID,
        partitions=[FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
    )
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])


def _list_offsets(version: int, topic_id: Ids) -> Request:
    requested = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=TOPIC, partitions=[requested])])


def _metadata(version: int, topic_id: Ids) -> Request:
    return MetadataRequest(
        topics=[MetadataRequest.Topic(name=TOPIC)],
        include_cluster_authorized_operations=8 <= version <= 10,
        include_topic_authorized_operations=version >= 8,
    )


def _offset_commit(version: int, topic_id: Ids) -> Request:
    requested = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = OffsetCommitRequest.Topic(
        name=TOPIC, topic_id=topic_id(TOPIC) if version >= 10 else NULL_UUID, partitions=[requested]
    )
    return OffsetCommitRequest(group_id=GROUP, member_id="", topics=[topic])


def _offset_fetch(version: int, topic_id: Ids) -> Request:
    if version < 8:
        return OffsetFetchRequest(group_id=GROUP, topics=[OffsetFetchRequest.Topic(name=TOPIC, partition_indexes=[0])])
    topic = OffsetFetchRequest.Group.Topic(
        name=TOPIC, topic_id=topic_id(TOPIC) if version >= 10 else NULL_UUID, partition_indexes=[0]
    )
    return OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=GROUP, topics=[topic])])


def _find_coordinator(version: int, topic_id: Ids) -> Request:
    if version < 4:
        return FindCoordinatorRequest(key=GROUP)
    return FindCoordinatorRequest(coordinator_keys=[GROUP])


def _join_group(version: int, topic_id: Ids) -> Request:
    protocols = [JoinGroupRequest.Protocol(name="range", metadata=b"")]
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )


def _heartbeat(version: int, topic_id: Ids) -> Request:
    return HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="nobody")


def _leave_group(version: int, topic_id: Ids) -> Request:
    if version < 3:
        return LeaveGroupRequest(group_id=GROUP, member_id="nobody")
    return LeaveGroupRequest(group_id=GROUP, members=[LeaveGroupRequest.Member(member_id="nobody")])


def _sync_group(version: int, topic_id: Ids) -> Request:
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id="nobody",
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[],
    )


def _create_topics(version: int, topic_id: Ids) -> Request:
    topic = CreateTopicsRequest.Topic(name="more", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic])


def _delete_topics(version: int, topic_id: Ids) -> Request:
    if version < 6:
        return DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000)
    topics = [DeleteTopicsRequest.Topic(name=TOPIC, topic_id=NULL_UUID)]
    return DeleteTopicsRequest(topics=topics, timeout_ms=30_000)


def _delete_records(version: int, topic_id: Ids) -> Request:
    requested = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=0)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=TOPIC, partitions=[requested])], timeout_ms=1000
    )


def _offset_for_leader_epoch(version: int, topic_id: Ids) -> Request:
    requested = OffsetForLeaderEpochRequest.Topic.Partition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        replica_id=-1 if version >= 3 else -2,
        topics=[OffsetForLeaderEpochRequest.Topic(topic=TOPIC, partitions=[requested])],
    )


def _add_partitions_to_txn(version: int, topic_id: Ids) -> Request:
    topics = [apt.Topic(name=TOPIC, partitions=[0])]
    if version < 4:
        return apt.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION, v3_and_below_producer_id=1, v3_and_below_topics=topics
        )
    transaction = apt.AddPartitionsToTxnRequest.Transaction(
        transactional_id=TRANSACTION, producer_id=1, producer_epoch=0, topics=topics
    )
    return apt.AddPartitionsToTxnRequest(transactions=[transaction])


def _write_txn_markers(version: int, topic_id: Ids) -> Request:
    marker = WriteTxnMarkersRequest.Marker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=True,
        topics=[WriteTxnMarkersRequest.Marker.Topic(name=TOPIC, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _txn_offset_commit(version: int, topic_id: Ids) -> Request:
    requested = TxnOffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1, committed_metadata="")
    return TxnOffsetCommitRequest(
        transactional_id=TRANSACTION,
        group_id=GROUP,
        producer_id=1,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequest.Topic(name=TOPIC, partitions=[requested])],
    )


def _describe_acls(version: int, topic_id: Ids) -> Request:
    return DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def _create_acls(version: int, topic_id: Ids) -> Request:
    creation = CreateAclsRequest.Creation(
        resource_type=2,
        resource_name=TOPIC,
        resource_pattern_type=3,
        principal="User:eve",
        host="*",
        operation=2,
        permission_type=3,
    )
    return CreateAclsRequest(creations=[creation])


def _delete_acls(version: int, topic_id: Ids) -> Request:
    wanted = DeleteAclsRequest.Filter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="User:eve",
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return DeleteAclsRequest(filters=[wanted])


def _describe_configs(version: int, topic_id: Ids) -> Request:
    resources = [
        DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
        for kind, name in ((TOPIC_RESOURCE, TOPIC), (BROKER_RESOURCE, "1"))
    ]
    return DescribeConfigsRequest(resources=resources)


def _alter_configs(version: int, topic_id: Ids) -> Request:
    config = AlterConfigsRequest.Resource.Config(name="retention.ms", value="1000")
    resource = AlterConfigsRequest.Resource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[config])
    return AlterConfigsRequest(resources=[resource], validate_only=False)


def _incremental_alter_configs(version: int, topic_id: Ids) -> Request:
    config = IncrementalAlterConfigsRequest.Resource.Config(name="retention.ms", config_operation=0, value="1000")
    topic = IncrementalAlterConfigsRequest.Resource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[config])
    config = IncrementalAlterConfigsRequest.Resource.Config(name="log.cleaner.threads", config_operation=0, value="1")
    broker = IncrementalAlterConfigsRequest.Resource(resource_type=BROKER_RESOURCE, resource_name="", configs=[config])
    return IncrementalAlterConfigsRequest(resources=[topic, broker], validate_only=False)


def _alter_replica_log_dirs(version: int, topic_id: Ids) -> Request:
    topic = AlterReplicaLogDirsRequest.Dir.Topic(name=TOPIC, partitions=[0])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.Dir(path="/nowhere", topics=[topic])])


def _elect_leaders(version: int, topic_id: Ids) -> Request:
    return ElectLeadersRequest(topic_partitions=[ElectLeadersRequest.TopicPartition(topic=TOPIC, partitions=[0])])


def _alter_partition_reassignments(version: int, topic_id: Ids) -> Request:
    moved = AlterPartitionReassignmentsRequest.Topic.Partition(partition_index=0, replicas=[1])
    return AlterPartitionReassignmentsRequest(
        topics=[AlterPartitionReassignmentsRequest.Topic(name=TOPIC, partitions=[moved])]
    )


def _offset_delete(version: int, topic_id: Ids) -> Request:
    partitions = [OffsetDeleteRequest.Topic.Partition(partition_index=0)]
    return OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequest.Topic(name=TOPIC, partitions=partitions)])


def _alter_client_quotas(version: int, topic_id: Ids) -> Request:
    entity = AlterClientQuotasRequest.Entry.Entity(entity_type="user", entity_name="eve")
    change = AlterClientQuotasRequest.Entry.Op(key="producer_byte_rate", value=1e9, remove=False)
    return AlterClientQuotasRequest(
        entries=[AlterClientQuotasRequest.Entry(entity=[entity], ops=[change])], validate_only=False
    )


def _describe_quorum(version: int, topic_id: Ids) -> Request:
    partitions = [DescribeQuorumRequest.Topic.Partition(partition_index=0)]
    return DescribeQuorumRequest(
        topics=[DescribeQuorumRequest.Topic(topic_name="__cluster_metadata", partitions=partitions)]
    )


def _update_features(version: int, topic_id: Ids) -> Request:
    update = UpdateFeaturesRequest.FeatureUpdate(feature="group.version", max_version_level=1)
    return UpdateFeaturesRequest(feature_updates=[update])


def _consumer_group_heartbeat(version: int, topic_id: Ids) -> Request:
    return ConsumerGroupHeartbeatRequest(
        group_id="the new kind",
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )


REQUESTS: dict[int, Callable[[int, Ids], Request]] = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    12: _heartbeat,
    13: _leave_group,
    14: _sync_group,
    15: lambda version, _: DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=version >= 3),
    16: lambda _, __: ListGroupsRequest(),
    18: lambda _, __: ApiVersionsRequest(client_software_name="wishes", client_software_version="1"),
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    22: lambda _, __: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
    23: _offset_for_leader_epoch,
    24: _add_partitions_to_txn,
    25: lambda _, __: aot.AddOffsetsToTxnRequest(
        transactional_id=TRANSACTION, producer_id=1, producer_epoch=0, group_id=GROUP
    ),
    26: lambda _, __: EndTxnRequest(transactional_id=TRANSACTION, producer_id=1, producer_epoch=0, committed=True),
    27: _write_txn_markers,
    28: _txn_offset_commit,
    29: _describe_acls,
    30: _create_acls,
    31: _delete_acls,
    32: _describe_configs,
    33: _alter_configs,
    34: _alter_replica_log_dirs,
    35: lambda _, __: DescribeLogDirsRequest(topics=None),
    37: lambda _, __: CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.Topic(name=TOPIC, count=5, assignments=None)],
        timeout_ms=30_000,
        validate_only=True,
    ),
    38: lambda _, __: CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
    39: lambda _, __: RenewDelegationTokenRequest(hmac=b"", renew_period_ms=-1),
    40: lambda _, __: ExpireDelegationTokenRequest(hmac=b"", expiry_time_period_ms=-1),
    41: lambda _, __: DescribeDelegationTokenRequest(owners=None),
    42: lambda _, __: DeleteGroupsRequest(groups_names=[GROUP]),
    43: _elect_leaders,
    44: _incremental_alter_configs,
    45: _alter_partition_reassignments,
    46: lambda _, __: ListPartitionReassignmentsRequest(),
    47: _offset_delete,
    17: lambda _, __: SaslHandshakeRequest(mechanism="PLAIN"),
    36: lambda _, __: SaslAuthenticateRequest(auth_bytes=b""),
    # A request for all users is never answered by Apache Kafka 4.3.1 if it is not allowed.
    50: lambda _, __: DescribeUserScramCredentialsRequest(users=[DescribeUserScramCredentialsRequest.User(name="eve")]),
    51: lambda _, __: AlterUserScramCredentialsRequest(
        deletions=[AlterUserScramCredentialsRequest.Deletion(name="eve", mechanism=1)], upsertions=[]
    ),
    48: lambda _, __: DescribeClientQuotasRequest(components=[], strict=False),
    49: _alter_client_quotas,
    55: _describe_quorum,
    57: _update_features,
    60: lambda _, __: DescribeClusterRequest(include_cluster_authorized_operations=True),
    61: lambda _, __: DescribeProducersRequest(
        topics=[DescribeProducersRequest.Topic(name=TOPIC, partition_indexes=[0])]
    ),
    64: lambda _, __: UnregisterBrokerRequest(broker_id=7),
    65: lambda _, __: DescribeTransactionsRequest(transactional_ids=[TRANSACTION]),
    66: lambda _, __: ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
    68: _consumer_group_heartbeat,
    69: lambda _, __: ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True),
    74: lambda _, __: ListConfigResourcesRequest(),
    75: lambda _, __: DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.Topic(name=TOPIC)]),
    80: lambda _, __: AddRaftVoterRequest(
        cluster_id=None, timeout_ms=1000, voter_id=7, voter_directory_id=bytes(15) + b"7", listeners=[]
    ),
    81: lambda _, __: RemoveRaftVoterRequest(cluster_id=None, voter_id=7, voter_directory_id=bytes(15) + b"7"),
}
