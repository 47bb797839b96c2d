"""The entire visible state of a broker, as plain data: two portraits are equal if the brokers have the same state.

    before = portrait(Client(HOST, kafka.port))
    ...                                            # another program takes the directory over
    assert portrait(Client(HOST, port)) == before

The requests are Kafka's, the same for Apache Kafka and trioka. Records are compared as the bytes of a fetch, so that
nothing is lost in between. What a restart changes on purpose is left out: leader epochs of the
partitions, addresses, times. After a start the requests are repeated until each partition has its leader.
"""

import time
from typing import Any, Final

from support.serving import Client

from trioka.cluster.image.features import NOT_SERVED
from trioka.protocol.batch import headers
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.describe_acls import DescribeAclsRequest
from trioka.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.messages.describe_producers import DescribeProducersRequest
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.metadata import MetadataRequest

Name = tuple[str, int]  # of a partition
ClusterDump = dict[str, dict[Any, Any]]  # a subject, and its values

PATIENCE_S: Final = 30
POLL_S: Final = 0.02
FETCH_BYTES: Final = 1 << 20
START_MS: Final = int(time.time() * 1000) - 3_600_000  # of what the tests write; an older producer would be forgotten
LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
TOPIC, BROKER, GROUP, CLIENT_METRICS = 2, 4, 32, 16
SOON_OVER: Final = (3, 6)  # the partition is not known, or not led, yet
STATIC_OR_DEFAULT: Final = (4, 5)  # sources of a configuration that is no part of the metadata


def portrait(client: Client, node_id: int = 1) -> ClusterDump:
    topics = _topics_with_leaders(client)
    names = [(topic.name, p.partition_index) for topic in topics for p in topic.partitions]
    return {
        "topics": {topic.name: _topic(topic) for topic in topics},
        "configs": _configs(client, [topic.name for topic in topics], node_id),
        "quotas": _quotas(client),
        "access rules": _acls(client),
        "features": _features(client),
        "offsets": {name: _offsets(client, name) for name in names},
        "producers": {name: _producers(client, name) for name in names},
        "records": {(*name, level): fetch_all(client, name, level) for name in names for level in LEVELS},
    }


def differences(one: ClusterDump, other: ClusterDump) -> list[str]:
    """In words, so that a test that fails shows what differs and not two portraits."""
    found = []
    for subject in one:
        for key in {**one[subject], **other[subject]}:
            first, second = one[subject].get(key, "nothing"), other[subject].get(key, "nothing")
            if first != second:
                found.append(f"{subject} of {key}: {first!r:.600} became {second!r:.600}")
    return found


def _topics_with_leaders(client: Client) -> list[Any]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = client.ask(MetadataRequest(topics=None), 12)
        partitions = [partition for topic in answer.topics for partition in topic.partitions]
        if answer.brokers and not any(partition.error_code for partition in partitions):
            return sorted(answer.topics, key=lambda topic: str(topic.name))
        assert time.monotonic() < deadline, f"partitions without a leader: {answer}"
        time.sleep(POLL_S)


def _topic(topic: Any) -> Any:
    return {
        "id": topic.topic_id.hex(),
        "internal": topic.is_internal,
        "partitions": {
            p.partition_index: (p.leader_id, p.replica_nodes, p.isr_nodes, p.offline_replicas) for p in topic.partitions
        },
    }


def leader_epochs(client: Client) -> dict[Name, int]:
    return {
        (topic.name, partition.partition_index): partition.leader_epoch
        for topic in _topics_with_leaders(client)
        for partition in topic.partitions
    }


def _configs(client: Client, topics: list[str], node_id: int) -> dict[Any, Any]:
    """Everything of topics and groups; of brokers, what was set at run time."""
    resource = DescribeConfigsRequest.Resource
    requested = [(TOPIC, topic) for topic in topics] + [(BROKER, ""), (BROKER, str(node_id)), (GROUP, "readers")]
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in requested
        ]
    )
    answer = client.ask(request, 4)
    assert [each.error_code for each in answer.results] == [0] * len(requested), answer
    return {
        (each.resource_type, each.resource_name): {
            config.name: (config.value, config.config_source)
            for config in each.configs
            if each.resource_type == TOPIC or config.config_source not in STATIC_OR_DEFAULT
        }
        for each in answer.results
    }


def _quotas(client: Client) -> dict[Any, Any]:
    answer = client.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
    return {
        tuple(sorted((part.entity_type, part.entity_name or "") for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def _acls(client: Client) -> dict[Any, Any]:
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return {
        (result.resource_type, result.resource_name, result.pattern_type): {
            (acl.principal, acl.host, acl.operation, acl.permission_type) for acl in result.acls
        }
        for result in client.ask(everything, 3).resources
    }


def _features(client: Client) -> dict[Any, Any]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    result = {each.name: each.max_version_level for each in client.ask(request, 3).finalized_features}
    return {name: level for name, level in result.items() if name not in NOT_SERVED}  # only Kafka reports these


def _offsets(client: Client, name: Name) -> dict[Any, Any]:
    stamps = [EARLIEST, LATEST, MAX_TIMESTAMP]
    # Apache Kafka finds nothing for a timestamp while the first segment that is new enough is below the log's start
    # and waits to be deleted; so a log whose start was moved is left out.
    if _offset(client, name, 0, EARLIEST)[0] == 0:
        stamps += range(START_MS, START_MS + 50_000, 7_010)
    return {
        (level, stamp): _offset(client, name, isolation, stamp)
        for level, isolation in LEVELS.items()
        for stamp in stamps
        if not (stamp == MAX_TIMESTAMP and isolation)
    }


def _offset(client: Client, name: Name, isolation: int, timestamp: int) -> tuple[int, int]:
    result = ListOffsetsRequest.Topic
    partition = result.Partition(partition_index=name[1], timestamp=timestamp)
    topics = [result(name=name[0], partitions=[partition])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (found,) = client.ask(request, 7).topics[0].partitions
        if found.error_code == 0:
            return found.offset, found.timestamp
        # Apache Kafka confirms a change before its own broker has applied it.
        assert found.error_code in SOON_OVER and time.monotonic() < deadline, (name, found)
        time.sleep(POLL_S)


def _producers(client: Client, name: Name) -> dict[Any, Any]:
    requested = DescribeProducersRequest.Topic(name=name[0], partition_indexes=[name[1]])
    (found,) = client.ask(DescribeProducersRequest(topics=[requested]), 0).topics[0].partitions
    assert found.error_code == 0, found
    return {
        each.producer_id: (
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in found.active_producers
    }


def fetch_all(client: Client, name: Name, level: str) -> dict[str, Any]:
    """Every batch of a partition, from its start to where this level may read, and the list of aborted transactions."""
    offset = _offset(client, name, 0, EARLIEST)[0]
    end = _offset(client, name, LEVELS[level], LATEST)[0]
    data, aborted = b"", set()
    while offset < end:
        found = fetch(client, name, offset, LEVELS[level])
        batches = found.records or b""
        assert batches, f"{name}: nothing at {offset}, and it ends at {end}"
        data += bytes(batches)
        aborted |= {(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()}
        offset = _next_offset(data)
    return {"end": end, "size": len(data), "aborted": sorted(aborted), "data": data.hex()}


def fetch(client: Client, name: Name, offset: int, isolation: int) -> Any:
    result = FetchRequest.Topic
    partition = result.Partition(partition=name[1], fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=isolation,
        topics=[result(topic=name[0], partitions=[partition])],
    )
    (found,) = client.ask(request, 11).responses[0].partitions
    assert found.error_code == 0, (name, offset, found)
    return found


def _next_offset(data: bytes) -> int:
    return max(header.next_offset for header in headers(data))


def quorum(client: Client) -> dict[str, Any]:
    """The metadata quorum, as it describes itself."""
    topic = DescribeQuorumRequest.Topic
    requested = topic(topic_name="__cluster_metadata", partitions=[topic.Partition(partition_index=0)])
    answer = client.ask(DescribeQuorumRequest(topics=[requested]), 2)
    (result,) = answer.topics[0].partitions
    return {
        "leader": result.leader_id,
        "epoch": result.leader_epoch,
        "high_watermark": result.high_watermark,
        "voters": [(voter.replica_id, voter.replica_directory_id.hex()) for voter in result.current_voters],
        "nodes": [
            (node.node_id, [(each.name, each.host, each.port) for each in node.listeners]) for node in answer.nodes
        ],
    }
