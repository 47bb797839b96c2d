"""Apache Kafka's own command-line tools, which an operator would use, against the broker under test.

They run in one Java machine. The one for consumer groups has a file of its own.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_under_test import Node
from clients.catalogue import Catalogue
from clients.client import Client
from clients.kafka_tools import KafkaTools
from clients.samples import FIRST_TIMESTAMP_MS, STEP_MS, few
from toolchains import unavailable

from trioka.pipeline.installation.cache import Unavailable

pytest_plugins = ["broker_under_test"]

# What is served from the first on, with the versions of Apache Kafka 4.3.1. More may be advertised.
API_VERSIONS = {
    "Produce(0)": "0 to 13 [usable: 13]",
    "Fetch(1)": "4 to 18 [usable: 18]",
    "ListOffsets(2)": "1 to 11 [usable: 11]",
    "Metadata(3)": "0 to 13 [usable: 13]",
    "FindCoordinator(10)": "0 to 6 [usable: 6]",
    "ApiVersions(18)": "0 to 4 [usable: 4]",
    "CreateTopics(19)": "2 to 7 [usable: 7]",
    "DeleteTopics(20)": "1 to 6 [usable: 6]",
    "DeleteRecords(21)": "0 to 2 [usable: 2]",
    "InitProducerId(22)": "0 to 5 [usable: 5]",
    "OffsetForLeaderEpoch(23)": "2 to 4 [usable: 4]",
    "DescribeConfigs(32)": "1 to 4 [usable: 4]",
    "AlterConfigs(33)": "0 to 2 [usable: 2]",
    "AlterReplicaLogDirs(34)": "1 to 2 [usable: 2]",
    "DescribeLogDirs(35)": "1 to 5 [usable: 5]",
    "CreatePartitions(37)": "0 to 3 [usable: 3]",
    "ElectLeaders(43)": "0 to 2 [usable: 2]",
    "IncrementalAlterConfigs(44)": "0 to 1 [usable: 1]",
    "AlterPartitionReassignments(45)": "0 to 1 [usable: 1]",
    "ListPartitionReassignments(46)": "0 [usable: 0]",
    "DescribeClientQuotas(48)": "0 to 1 [usable: 1]",
    "AlterClientQuotas(49)": "0 to 1 [usable: 1]",
    "DescribeQuorum(55)": "0 to 2 [usable: 2]",
    "UpdateFeatures(57)": "0 to 2 [usable: 2]",
    "DescribeCluster(60)": "0 to 2 [usable: 2]",
    "DescribeProducers(61)": "0 [usable: 0]",
    "UnregisterBroker(64)": "0 [usable: 0]",
    "ListConfigResources(74)": "0 to 1 [usable: 1]",
    "DescribeTopicPartitions(75)": "0 [usable: 0]",
}
FEATURES = {
    "eligible.leader.replicas.version": "1",
    "group.version": "1",
    "metadata.version": "4.3-IV0",
    "transaction.version": "2",
}
ONLY_KAFKAS = {"share.version": "1", "streams.version": "1"}  # which nobody serves here


@pytest.fixture(scope="module")
def tools(node: Node) -> Iterator[KafkaTools]:
    try:
        tools = KafkaTools(node.bootstrap, is_late=node.name == "kafka")
    except Unavailable as missing:
        unavailable(missing)
    yield tools
    tools.close()


@pytest.fixture
def writer(catalogue: Catalogue) -> Client:
    """Someone who makes topics and writes to them, where that is not what is asked about."""
    return catalogue["confluent-kafka"]


def test_kafka_topics_makes_describes_grows_and_deletes_a_topic(tools: KafkaTools, topic: str) -> None:
    made = tools("topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=1000")
    assert made == f"Created topic {topic}.\n"
    assert topic in tools("topics", "--list").splitlines()
    tools("topics", "--alter", "--topic", topic, "--partitions", "3")
    head, *rows = tools("topics", "--describe", "--topic", topic).splitlines()
    assert re.search(
        r"TopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: .*\bretention.ms=1000$", head
    )
    assert [re.sub(r"\bLeader: \d+\tReplicas: \d+\tIsr: \d+\b", "…", row).strip() for row in rows] == [
        f"Topic: {topic}\tPartition: {index}\t…\tElr: \tLastKnownElr:" for index in range(3)
    ]
    tools("topics", "--delete", "--topic", topic)
    assert topic not in tools("topics", "--list").splitlines()


@pytest.mark.parametrize("kind", ["under-replicated", "under-min-isr", "at-min-isr", "unavailable"])
def test_kafka_topics_finds_no_partition_in_need(kind: str, tools: KafkaTools, writer: Client, topic: str) -> None:
    writer.create_topic(topic)
    text = tools("topics", "--describe", "--topic", topic, f"--{kind}-partitions")
    assert bool(text) is (kind == "at-min-isr")  # one replica of one is as few as there may be


def test_kafka_topics_explains_mistakes(tools: KafkaTools, writer: Client, topic: str) -> None:
    writer.create_topic(topic)
    # The tool names the error; how the broker words it is the broker's business.
    for arguments, error in {
        ("--create", "--topic", topic): "TopicExistsException",
        ("--create", "--topic", "white space"): "InvalidTopicException",
        ("--create", "--topic", "x", "--replication-factor", "2"): "InvalidReplicationFactorException",
        ("--create", "--topic", "x", "--config", "retention.ms=soon"): "ConfigException: Invalid value soon",
        ("--alter", "--topic", topic, "--partitions", "1"): "InvalidPartitionsException",
        ("--describe", "--topic", "nobody"): "Topic 'nobody' does not exist as expected",
        ("--delete", "--topic", "nobody"): "Topic 'nobody' does not exist as expected",
    }.items():
        ended = tools.end_of("topics", *arguments)
        assert (ended.status, error in ended.err) == (1, True), (arguments, ended)
    tools("topics", "--create", "--topic", topic, "--if-not-exists")


def test_kafka_configs_changes_a_topic(tools: KafkaTools, writer: Client, topic: str) -> None:
    writer.create_topic(topic, config={"retention.ms": "1000"})
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools("configs", *entity, "--alter", "--add-config", "max.message.bytes=20000,cleanup.policy=[compact,delete]")
    assert tools("configs", *entity, "--describe").splitlines() == [
        f"Dynamic configs for topic {topic} are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  max.message.bytes=20000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=20000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588}",
        "  retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}",
    ]
    tools("configs", *entity, "--alter", "--delete-config", "cleanup.policy,retention.ms")
    result = tools("configs", *entity, "--describe", "--all")
    assert "  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}\n" in result
    assert "  retention.ms=604800000 sensitive=false synonyms={}\n" in result
    ended = tools.end_of("configs", *entity, "--alter", "--add-config", "no.such.key=1")
    assert ended.status == 1 and "InvalidConfigurationException" in ended.err


def test_kafka_configs_changes_brokers_one_and_all(tools: KafkaTools, writer: Client) -> None:
    (id,) = writer.cluster().brokers
    key = "log.segment.delete.delay.ms"
    one, all_of_them = ("--entity-name", str(id)), ("--entity-default",)
    for entity, value, source in ((all_of_them, 70_000, "DEFAULT_BROKER"), (one, 80_000, "BROKER")):
        tools("configs", "--entity-type", "brokers", *entity, "--alter", "--add-config", f"{key}={value}")
        result = tools("configs", "--entity-type", "brokers", *entity, "--describe")
        assert f"  {key}={value} sensitive=false synonyms={{DYNAMIC_{source}_CONFIG:{key}={value}" in result
    for entity in (one, all_of_them):
        tools("configs", "--entity-type", "brokers", *entity, "--alter", "--delete-config", key)
    result = tools("configs", "--entity-type", "brokers", *one, "--describe", "--all")
    assert f"  {key}=60000 sensitive=false synonyms={{DEFAULT_CONFIG:{key}=60000}}\n" in result
    ended = tools.end_of("configs", "--entity-type", "brokers", *one, "--alter", "--add-config", "node.id=7")
    assert ended.status == 1


def test_kafka_configs_keeps_quotas(tools: KafkaTools) -> None:
    client = ("--entity-type", "clients", "--entity-name", "greedy")
    tools("configs", *client, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    result = tools("configs", *client, "--describe")
    assert result.startswith("Quota configs for client-id 'greedy' are ")
    assert {"producer_byte_rate=1024.0", "request_percentage=12.5"} == set(result.split(" are ")[1].strip().split(", "))
    tools("configs", *client, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    assert "rate" not in tools("configs", *client, "--describe")


def test_kafka_get_offsets_tells_offsets_by_time_and_at_the_ends(tools: KafkaTools, writer: Client, topic: str) -> None:
    writer.create_topic(topic, partitions=2)
    records = few(5)
    writer.produce(topic, [*records, *(record._replace(partition=1) for record in records[:2])])
    time = FIRST_TIMESTAMP_MS + 2 * STEP_MS - 1
    for requested, expected in {
        "-1": ("5", "2"),
        "latest": ("5", "2"),
        "-2": ("0", "0"),
        "-3": ("4", "1"),
        "-4": ("0", "0"),  # the earliest that is on this disk
        str(time): ("2",),  # a partition without such a record is left out
    }.items():
        result = tools("get-offsets", "--topic", topic, "--time", requested).splitlines()
        assert result == [f"{topic}:{index}:{offset}" for index, offset in enumerate(expected)], requested
    assert tools("get-offsets", "--topic-partitions", f"{topic}:1") == f"{topic}:1:2\n"


def test_kafka_delete_records_moves_the_beginning(
    tools: KafkaTools, writer: Client, topic: str, tmp_path: Path
) -> None:
    writer.create_topic(topic)
    writer.produce(topic, few(5))
    script = tmp_path / "records.json"
    script.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}))
    assert f"partition: {topic}-0\tlow_watermark: 3\n" in tools("delete-records", "--offset-json-file", str(script))
    assert tools("get-offsets", "--topic", topic, "--time", "-2") == f"{topic}:0:3\n"


def test_kafka_log_dirs_tells_sizes(tools: KafkaTools, writer: Client, topic: str) -> None:
    writer.create_topic(topic, partitions=2)
    writer.produce(topic, few(5))
    *_, result = tools("log-dirs", "--describe", "--topic-list", topic).splitlines()
    (broker,) = json.loads(result)["brokers"]
    partitions = {row["partition"]: row for folder in broker["logDirs"] for row in folder["partitions"]}
    assert set(partitions) == {f"{topic}-0", f"{topic}-1"}
    assert partitions[f"{topic}-0"]["size"] > 61 and partitions[f"{topic}-1"]["size"] == 0
    assert all(row["offsetLag"] == 0 and not row["isFuture"] for row in partitions.values())


def test_kafka_broker_api_versions_finds_every_api_usable(tools: KafkaTools, node: Node) -> None:
    head, *rows, _ = tools("broker-api-versions").splitlines()
    assert head.startswith(f"{node.bootstrap} (id: ")
    result = dict(row.strip(" \t,").split(": ", 1) for row in rows)
    assert {name: result.get(name) for name in API_VERSIONS} == API_VERSIONS


def test_kafka_metadata_quorum_sees_a_quorum_of_one(tools: KafkaTools, writer: Client) -> None:
    (id,) = writer.cluster().brokers
    result = dict(re.findall(r"^(\w+): +(.*)$", tools("metadata-quorum", "describe", "--status"), re.MULTILINE))
    assert (result["LeaderId"], result["MaxFollowerLag"]) == (str(id), "0")
    (voter,) = json.loads(result["CurrentVoters"])
    assert voter["id"] == id
    assert int(result["HighWatermark"]) > 0
    _, row = tools("metadata-quorum", "describe", "--replication").splitlines()
    assert row.split()[0] == str(id) and row.split()[-1] == "Leader"


def test_kafka_features_are_those_of_a_fresh_cluster(tools: KafkaTools, node: Node) -> None:
    result = {
        found[1]: found[2]
        for found in re.finditer(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", tools("features", "describe"))
    }
    expected = FEATURES | (ONLY_KAFKAS if node.name == "kafka" else dict.fromkeys(ONLY_KAFKAS))
    assert {name: result.get(name) for name in expected} == expected
    assert "metadata.version was upgraded to 30." in tools("features", "upgrade", "--feature", "metadata.version=30")
    ended = tools.end_of("features", "upgrade", "--feature", "metadata.version=1000")
    assert ended.status == 1


def test_kafka_cluster_names_the_cluster_and_its_broker(tools: KafkaTools, node: Node) -> None:
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", tools("cluster", "cluster-id"))
    _, row = tools("cluster", "list-endpoints").splitlines()
    host, port = node.bootstrap.split(":")
    assert row.split()[1:] == [host, port, "null", "unfenced", "broker"]


def test_kafka_producer_perf_test_sends_everything(tools: KafkaTools, writer: Client, topic: str) -> None:
    writer.create_topic(topic)
    load = ("--num-records", "2000", "--record-size", "200", "--throughput", "-1")
    assert "2000 records sent" in tools("producer-perf-test", "--topic", topic, *load)
    assert tools("get-offsets", "--topic", topic) == f"{topic}:0:2000\n"


def test_kafka_consumer_perf_test_reads_everything(tools: KafkaTools, writer: Client, topic: str) -> None:
    writer.create_topic(topic, partitions=2)
    writer.produce(topic, [*few(50), *(record._replace(partition=1) for record in few(30))])
    head, row = tools("consumer-perf-test", "--topic", topic, "--num-records", "80").splitlines()
    result = dict(zip(head.split(", "), row.split(", "), strict=True))
    assert result["data.consumed.in.nMsg"] == "80"


def test_the_console_consumer_prints_what_the_console_producer_was_told(
    tools: KafkaTools, writer: Client, topic: str
) -> None:
    writer.create_topic(topic)
    parse = ["parse.key=true", "parse.headers=true", "null.marker=NULL"]
    spoken = "a:1,b:2\tkey\tvalue\nd:4\tNULL\tno key\nc:\tno value\tNULL\n"
    options = [option for property in parse for option in ("--reader-property", property)]
    tools("console-producer", "--topic", topic, "--compression-codec", "zstd", *options, stdin=spoken)
    show = ["print.offset", "print.partition", "print.headers", "print.key"]
    options = [option for property in show for option in ("--formatter-property", f"{property}=true")]
    consume = ("console-consumer", "--topic", topic, "--partition", "0", *options)
    lines = [
        "Partition:0\tOffset:0\ta:1,b:2\tkey\tvalue",
        "Partition:0\tOffset:1\td:4\tnull\tno key",
        "Partition:0\tOffset:2\tc:\tno value\tnull",
    ]
    assert tools(*consume, "--offset", "earliest", "--max-messages", "3").splitlines() == lines
    assert tools(*consume, "--offset", "1", "--max-messages", "2").splitlines() == lines[1:]


def test_kafka_leader_election_finds_leaders_elected(tools: KafkaTools, writer: Client, topic: str) -> None:
    writer.create_topic(topic)
    elect = ("leader-election", "--election-type", "preferred")
    text = tools(*elect, "--topic", topic, "--partition", "0")
    assert text == f"Valid replica already elected for partitions {topic}-0\n"
    tools(*elect, "--all-topic-partitions")
    ended = tools.end_of(*elect, "--topic", "nobody", "--partition", "0")
    assert ended.status == 1


def test_kafka_reassign_partitions_moves_nothing_on_one_node(
    tools: KafkaTools, writer: Client, topic: str, tmp_path: Path
) -> None:
    writer.create_topic(topic)
    (id,) = writer.cluster().brokers
    script = tmp_path / "script.json"

    script.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generate = ("--generate", "--topics-to-move-json-file", str(script), "--broker-list", str(id))
    plan = json.loads(tools("reassign-partitions", *generate).splitlines()[-1])
    assert [(row["topic"], row["partition"], row["replicas"]) for row in plan["partitions"]] == [(topic, 0, [id])]

    script.write_text(json.dumps(plan))
    file = ("--reassignment-json-file", str(script))
    text = tools("reassign-partitions", "--execute", *file)
    assert f"Successfully started partition reassignment for {topic}-0\n" in text
    text = tools("reassign-partitions", "--verify", *file)
    assert f"Reassignment of partition {topic}-0 is completed.\n" in text
    assert tools("reassign-partitions", "--list") == "No partition reassignments found.\n"

    script.write_text(json.dumps(plan).replace(f"[{id}]", "[77]"))
    ended = tools.end_of("reassign-partitions", "--execute", *file)
    assert ended.status == 1 and "Unknown broker id 77" in ended.out
