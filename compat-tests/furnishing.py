"""The content that each program writes into the shared directory, by requests and Kafka's producers.

Apache Kafka writes what a cluster can hold: topics of several partitions, every codec, transactions that were committed
and aborted and one that stays open, a compacted log, a log whose start was moved, a deleted topic; configurations of
brokers, topics and groups, quotas, access rules, credentials, a group's offsets. Then each goes on where the other one
stopped.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from kafka_directory import CLEAN, CODECS, FIRST_TIMESTAMP_MS, SEGMENT_BYTES, WAIT, sends, wait_until_compacted
from oracle import ApacheKafka, run_program
from portrait import BROKER, CLIENT_METRICS, GROUP, PATIENCE_S, POLL_S, START_MS, TOPIC, ClusterDump, Name
from support.serving import Client
from support.small_cluster import new_topic, quota

from trioka.protocol import batch
from trioka.protocol.compression import Codec
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_acls import DeleteAclsRequest
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.record import Record

Json = dict[str, Any]

SMALL = {"internal.segment.bytes": str(SEGMENT_BYTES)}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (len(CODECS), SMALL),
    "transactions": (2, SMALL),
    "open-transaction": (1, {}),
    "append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    "moved-start": (1, SMALL),
    "compacted": (1, {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}),
    "configured": (3, {"retention.ms": "-1", "max.message.bytes": "5000", "compression.type": "zstd"}),
    "deleted": (2, {}),
}
GROUP_ID = "readers"
SOON_OVER = (3, 6, 7, 14, 15, 16)  # retriable errors of a broker whose state is not up to date yet


# Apache Kafka --------------------------------------------------------------------------------------------------------


def write_with_kafka(kafka: ApacheKafka, client: Client) -> None:
    create(client, *(new_topic(name, count, configs=dict(configs)) for name, (count, configs) in TOPICS.items()))
    administer(client)
    run_program("Produce", kafka.bootstrap, stdin="\n".join(map(json.dumps, of_today(script()))))
    wait_until_compacted(kafka)
    alter_configs(client, (TOPIC, "compacted", {key: str(value) for key, value in WAIT.items()}))
    delete_topic(client, "deleted")
    commit_offset(client, 7)


def script() -> Iterator[Json]:
    """In the words of programs/Produce.java."""
    for partition, codec in enumerate(CODECS):
        yield {"open": {"compression.type": codec, "linger.ms": 1000}, "by": codec}
        for number in range(12):
            yield from within(partition, sends("codecs", number, count=1 + number % 5, by=codec))
    yield {"open": {"linger.ms": 1000}}
    for topic, count in (("append-time", 3), ("moved-start", 30), ("configured", 2), ("deleted", 2)):
        for number in range(count):
            yield from sends(topic, number, count=4)
    yield {"delete_before": {"topic": "moved-start", "offset": 50}}
    for name in "ab":
        yield {"open": {"transactional.id": name, "linger.ms": 1000, "compression.type": "lz4"}, "by": name}
    for turn in range(8):
        for name in "ab":
            yield {"begin": 1, "by": name}
            yield from within(turn % 2, sends("transactions", turn, count=2, by=name))
        yield from sends("transactions", turn, count=1)
        for name in "ba":
            yield {("abort" if (turn + (name == "b")) % 3 == 0 else "commit"): 1, "by": name}
    for turn in range(24):
        yield from sends("compacted", turn, count=8, keys=8)
    yield {"settle": "transactions"}
    yield {"alter": {"compacted": CLEAN}}
    yield {"open": {"transactional.id": "open", "linger.ms": 1000, "transaction.timeout.ms": 900_000}, "by": "open"}
    yield from sends("open-transaction", 0, count=2)
    yield {"begin": 1, "by": "open"}
    yield from sends("open-transaction", 1, count=2, by="open")
    yield from sends("open-transaction", 2, count=2)
    yield {"halt": 1}


def within(partition: int, lines: Iterator[Json]) -> Iterator[Json]:
    for line in lines:
        yield {**line, "send": {**line["send"], "partition": partition}} if "send" in line else line


def of_today(lines: Iterator[Json]) -> Iterator[Json]:
    """The same, with current timestamps: a producer that is idle for a day is removed at the next start."""
    for line in lines:
        if "send" in line:
            line["send"]["timestamp"] += START_MS - FIRST_TIMESTAMP_MS
        yield line


def administer(client: Client) -> None:
    alter_configs(
        client,
        (BROKER, "", {"log.message.timestamp.after.max.ms": "3600001", "message.max.bytes": "2000000"}),
        (BROKER, "1", {"background.threads": "3"}),
        (TOPIC, "configured", {"min.insync.replicas": "1", "flush.messages": "7"}),
        (GROUP, GROUP_ID, {"consumer.session.timeout.ms": "50000"}),
        (CLIENT_METRICS, "slow", {"interval.ms": "60000"}),
    )
    alter_quotas(client, {"user": "ann", "client-id": None}, producer_byte_rate=1024.0, request_percentage=12.5)
    alter_quotas(client, {"ip": "127.0.0.2"}, connection_creation_rate=5.0)
    make_rules(client)
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name="ann", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    answer = client.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)
    assert [each.error_code for each in answer.results] == [0], answer


def make_rules(client: Client) -> None:
    """Access rules, of which one goes again."""
    result = CreateAclsRequest.Creation
    rules = [
        result(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal="User:ann",
            host="10.0.0.7",
            operation=operation,
            permission_type=permission,
        )
        for kind, name, pattern, operation, permission in (
            (2, "codecs", 3, 3, 3),
            (2, "con", 4, 2, 2),
            (3, "*", 3, 8, 3),
            (4, "kafka-cluster", 3, 12, 3),
        )
    ]
    created = client.ask(CreateAclsRequest(creations=rules), 3)
    assert [each.error_code for each in created.results] == [0] * len(rules), created
    gone = DeleteAclsRequest.Filter(
        resource_type_filter=3,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    (deleted,) = client.ask(DeleteAclsRequest(filters=[gone]), 3).filter_results
    assert len(deleted.matching_acls) == 1, deleted


def credentials(client: Client) -> list[Any]:
    """What Apache Kafka knows of its users' passwords."""
    answer = client.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    return [
        (each.user, [(info.mechanism, info.iterations) for info in each.credential_infos]) for each in answer.results
    ]


def commit_offset(client: Client, offset: int) -> None:
    result = OffsetCommitRequest.Topic
    partition = result.Partition(partition_index=0, committed_offset=offset, committed_metadata="here")
    request = OffsetCommitRequest(
        group_id=GROUP_ID, member_id="", topics=[result(name="configured", partitions=[partition])]
    )
    requested = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP_ID])
    until_done(lambda: client.ask(requested, 4).coordinators[0])
    until_done(lambda: client.ask(request, 8).topics[0].partitions[0])


def committed_offset(client: Client) -> int:
    topic = OffsetFetchRequest.Topic(name="configured", partition_indexes=[0])
    request = OffsetFetchRequest(group_id=GROUP_ID, topics=[topic])
    until_done(lambda: client.ask(request, 7))
    return int(client.ask(request, 7).topics[0].partitions[0].committed_offset)


# Requests to the current program -------------------------------------------------------------------------------------


def until_done(ask: Any) -> Any:
    """Apache Kafka confirms a change before its own broker has applied it, and takes a while to load groups."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := ask()).error_code in SOON_OVER and time.monotonic() < deadline:
        time.sleep(POLL_S)
    assert answer.error_code == 0, answer
    return answer


def create(client: Client, *topics: CreateTopicsRequest.Topic) -> None:
    answer = client.ask(CreateTopicsRequest(topics=list(topics)), 7)
    assert {each.error_code for each in answer.topics} == {0}, answer


def delete_topic(client: Client, name: str) -> None:
    wanted = DeleteTopicsRequest.Topic(name=name, topic_id=NULL_UUID)
    answer = client.ask(DeleteTopicsRequest(topics=[wanted], timeout_ms=30_000), 6)
    assert [each.error_code for each in answer.responses] == [0], answer


def add_partitions(client: Client, name: str, count: int) -> None:
    wanted = CreatePartitionsRequest.Topic(name=name, count=count, assignments=None)
    answer = client.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 3)
    assert [each.error_code for each in answer.results] == [0], answer


def alter_configs(
    client: Client, *changes: tuple[int, str, dict[str, str | None]] | tuple[int, str, dict[str, str]]
) -> None:
    """None deletes."""
    resource = IncrementalAlterConfigsRequest.Resource
    resources = [
        resource(
            resource_type=kind,
            resource_name=name,
            configs=[
                resource.Config(name=key, config_operation=0 if value is not None else 1, value=value)
                for key, value in pairs.items()
            ],
        )
        for kind, name, pairs in changes
    ]
    answer = client.ask(IncrementalAlterConfigsRequest(resources=resources, validate_only=False), 1)
    assert {each.error_code for each in answer.responses} == {0}, answer


def alter_quotas(client: Client, entity: dict[str, str | None], **values: float | None) -> None:
    """None deletes."""
    answer = client.ask(AlterClientQuotasRequest(entries=[quota(entity, values)], validate_only=False), 1)
    assert [each.error_code for each in answer.entries] == [0], answer


def delete_records(client: Client, name: Name, offset: int) -> None:
    topic = DeleteRecordsRequest.Topic
    partition = topic.Partition(partition_index=name[1], offset=offset)
    request = DeleteRecordsRequest(topics=[topic(name=name[0], partitions=[partition])], timeout_ms=30_000)
    until_done(lambda: client.ask(request, 2).topics[0].partitions[0])


def new_producer(client: Client) -> int:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
    )
    return int(until_done(lambda: client.ask(request, 4)).producer_id)


def produce(
    client: Client,
    name: Name,
    *,
    producer_id: int,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 3,
    codec: Codec = Codec.NONE,
) -> int:
    """One batch of an idempotent producer; its first offset."""
    records = [
        Record(index, START_MS + 100_000 + sequence, b"new-%d-%d" % (producer_id, sequence + index), b"value")
        for index in range(count)
    ]
    data = batch.build(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, codec=codec)
    topic = ProduceRequest.Topic
    partition = topic.Partition(index=name[1], records=data)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic(name=name[0], partition_data=[partition])])
    return int(until_done(lambda: client.ask(request, 9).responses[0].partition_responses[0]).base_offset)


def go_on(client: Client, name: Name, before: ClusterDump) -> None:
    """A producer that both have seen sends what follows on its last batch, and then that last batch once more, which is
    known again and not appended."""
    producer_id, (epoch, last_sequence, *_) = max(before["producers"][name].items())
    end = before["records"][(*name, "read_uncommitted")]["end"]
    first = produce(client, name, producer_id=producer_id, epoch=epoch, sequence=last_sequence + 1)
    assert first == end
    again = produce(client, name, producer_id=producer_id, epoch=epoch, sequence=last_sequence + 1)
    assert again == first, "the same batch is in the log twice"


def change_everything(client: Client, before: ClusterDump, by: str) -> None:
    """The changes that a program makes after it has taken over the directory."""
    create(client, new_topic(f"of-{by}", 2, configs={"retention.ms": "123456789"}))
    add_partitions(client, "configured", len(before["topics"]["configured"]["partitions"]) + 1)
    alter_configs(
        client,
        (TOPIC, "configured", {"flush.messages": None, "flush.ms": str(1000 + len(by))}),
        (BROKER, "", {"log.message.timestamp.after.max.ms": str(3_600_001 + len(by))}),
    )
    alter_quotas(client, {"user": "ann", "client-id": None}, producer_byte_rate=None)
    alter_quotas(client, {"user": by}, consumer_byte_rate=77.0)
    producer_id = new_producer(client)
    for name in ((f"of-{by}", 0), (f"of-{by}", 1), ("compacted", 0), ("transactions", 0), ("append-time", 0)):
        for turn in range(4):
            produce(client, name, producer_id=producer_id, sequence=turn * 3)
    go_on(client, ("codecs", 0), before)
    go_on(client, ("codecs", 4), before)
    delete_records(client, ("moved-start", 0), before["offsets"]["moved-start", 0]["read_uncommitted", -2][0] + 10)


def write_with_trioka(client: Client) -> None:
    """Into a directory that it made itself."""
    create(client, *(new_topic(name, count, configs=dict(configs)) for name, (count, configs) in TOPICS.items()))
    make_rules(client)
    alter_configs(
        client,
        (BROKER, "", {"message.max.bytes": "2000000"}),
        (TOPIC, "configured", {"min.insync.replicas": "1", "flush.messages": "7"}),
    )
    alter_quotas(client, {"user": "ann", "client-id": None}, producer_byte_rate=1024.0, request_percentage=12.5)
    producer_id = new_producer(client)
    for codec in Codec:
        for turn in range(12):
            produce(client, ("codecs", codec), producer_id=producer_id, sequence=turn * 3, codec=codec)
    for name in (("moved-start", 0), ("compacted", 0), ("append-time", 0), ("deleted", 1)):
        for turn in range(30):
            produce(client, name, producer_id=producer_id, sequence=turn * 3)
    delete_records(client, ("moved-start", 0), 50)
    delete_topic(client, "deleted")
