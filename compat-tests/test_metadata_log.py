"""The metadata of Apache Kafka read by us, and ours by Apache Kafka: records, batches, snapshots, quorum-state."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from clients.kafka_tools import KafkaTools
from oracle import DUMP_LOG, ApacheKafka, OracleFailed, run_tool
from side_by_side import PATIENCE_S, POLL_S
from support.serving import HOST, LISTENER, Client, broker_in_thread
from support.small_cluster import SmallCluster, new_topic, quota

from trioka.cluster.controller.bootstrap import fresh_records
from trioka.cluster.image.features import NOT_SERVED
from trioka.cluster.image.metadata import Metadata
from trioka.cluster.quorum.metadata_log import (
    RECORDS,
    ControlMessage,
    LogEntry,
    MetadataRecord,
    build_batch,
    build_control_batch,
    decode_record,
    encode_record,
    read_batch,
    written_version,
)
from trioka.cluster.quorum.quorum_state import decode_quorum_state, encode_quorum_state
from trioka.cluster.quorum.snapshot import SnapshotId, build_snapshot, parse_snapshot_name, read_snapshot, snapshot_name
from trioka.protocol import batch
from trioka.protocol.internal_records import metadata as ledger
from trioka.protocol.internal_records.control import KRaftVersionRecord, LeaderChangeMessage, Voter, VotersRecord
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.update_features import UpdateFeaturesRequest
from trioka.protocol.primitives import NULL_UUID

pytestmark = pytest.mark.usefixtures("apache_kafka")

LOG = "00000000000000000000.log"
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": 2000,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What Apache Kafka has left behind."""

    log: bytes
    snapshots: dict[SnapshotId, bytes]
    bootstrap: bytes
    quorum_state: str


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, apache_kafka: None) -> Iterator[Written]:
    """Apache Kafka formats, starts, does a bit of everything, stops, and starts once more."""
    folder = tmp_path_factory.mktemp("metadata")
    with ApacheKafka(SETTINGS, parent=folder) as kafka:
        busy(kafka)
        kafka.stop()
        kafka.start()
        kafka.kill()
        metadata = kafka.partition("__cluster_metadata-0")
        names = [(parse_snapshot_name(path.name), path) for path in metadata.glob("*.checkpoint")]
        yield Written(
            log=(metadata / LOG).read_bytes(),
            snapshots={name: path.read_bytes() for name, path in names if name is not None},
            bootstrap=(kafka.data_dir / "bootstrap.checkpoint").read_bytes(),
            quorum_state=(metadata / "quorum-state").read_text(),
        )
    shutil.rmtree(folder)


def busy(kafka: ApacheKafka) -> None:
    with closing(Client(HOST, kafka.port)) as client:
        do_everything(client)


def do_everything(client: Client) -> None:
    topics = [new_topic("orders", 3, configs={"retention.ms": "1000", "min.insync.replicas": "1"}), new_topic("a.b")]
    client.ask(CreateTopicsRequest(topics=topics), 7)
    wanted = CreatePartitionsRequest.Topic(name="orders", count=5, assignments=None)
    client.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 3)
    for kind, name, key, value in ((2, "orders", "segment.ms", "60000"), (4, "", "log.retention.ms", "90000000")):
        resource = IncrementalAlterConfigsRequest.Resource
        config = resource.Config(name=key, config_operation=0, value=value)
        altered = resource(resource_type=kind, resource_name=name, configs=[config])
        client.ask(IncrementalAlterConfigsRequest(resources=[altered], validate_only=False), 1)
    quotas = [
        quota({"user": "ann", "client-id": None}, {"producer_byte_rate": 1024.0}),
        quota({"ip": "127.0.0.2"}, {"connection_creation_rate": 5.0}),
    ]
    client.ask(AlterClientQuotasRequest(entries=quotas, validate_only=False), 1)
    client.ask(
        AlterClientQuotasRequest(
            entries=[quota({"ip": "127.0.0.2"}, {"connection_creation_rate": None})], validate_only=False
        ),
        1,
    )
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name="ann", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    client.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)
    rule = CreateAclsRequest.Creation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:ann",
        host="*",
        operation=3,
        permission_type=3,
    )
    client.ask(CreateAclsRequest(creations=[rule]), 3)
    client.ask(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1), 4
    )
    lower = UpdateFeaturesRequest.FeatureUpdate(feature="group.version", max_version_level=0, upgrade_type=2)
    client.ask(UpdateFeaturesRequest(feature_updates=[lower]), 2)
    client.ask(
        DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="a.b", topic_id=NULL_UUID)], timeout_ms=30_000), 6
    )


def entries_of(data: bytes) -> list[LogEntry]:
    return [entry for header in batch.headers(data) for entry in read_batch(data, header)]


def replayed(entries: list[LogEntry], upto: int | None = None) -> Metadata:
    metadata = Metadata()
    for entry in entries:
        if entry.record is not None and (upto is None or entry.offset < upto):
            metadata.replay(entry.record, entry.offset, entry.epoch)
    return metadata


def test_every_record_is_read_and_written_again_to_the_byte_in_the_same_version(written: Written) -> None:
    seen: set[type] = set()
    for data in (written.log, written.bootstrap, *written.snapshots.values()):
        for header in batch.headers(data):
            batch.verify(data, header)
            for record in batch.records(data, header):
                if not header.is_control:
                    assert record.key is None and record.value is not None
                    decoded, version = decode_record(record.value)
                    assert encode_record(decoded, version) == record.value
                    assert written_version(decoded) == version, decoded
                    seen.add(type(decoded))
    missing = set(RECORDS.values()) - seen
    assert missing <= {
        ledger.UnregisterBrokerRecord,
        ledger.FenceBrokerRecord,  # written by older versions only
        ledger.UnfenceBrokerRecord,
        ledger.DelegationTokenRecord,
        ledger.RemoveDelegationTokenRecord,
        ledger.RemoveAccessControlEntryRecord,
        ledger.RemoveUserScramCredentialRecord,
        ledger.AbortTransactionRecord,
        ledger.ZkMigrationStateRecord,
    }, missing


def test_batches_are_built_as_kafka_builds_them(written: Written) -> None:
    for data in (written.log, *written.snapshots.values()):
        for header in batch.headers(data):
            entries = list(read_batch(data, header))
            assert {entry.timestamp_ms for entry in entries} == {header.max_timestamp}
            place = {"base_offset": header.base_offset, "epoch": header.leader_epoch, "now_ms": header.max_timestamp}
            if header.is_control:
                built = build_control_batch([entry.control for entry in entries if entry.control], **place)
            else:
                built = build_batch([entry.record for entry in entries if entry.record], **place)
            assert built == data[header.position : header.end], header


def test_the_log_is_replayed_to_what_was_done(written: Written) -> None:
    metadata = replayed(entries_of(written.log))
    (topic,) = metadata.topics
    assert topic.name == "orders" and list(topic.partitions) == [0, 1, 2, 3, 4]
    assert {partition.leader for partition in topic.partitions.values()} == {1}
    assert [type(change).__name__ for change in Metadata().load(metadata.records(), 0, 0)]
    assert metadata.access.scram("ann", 1) is not None and len(metadata.access.acls) == 1
    assert metadata.next_producer_id == 1000
    assert [dict(values) for _, values in metadata.quotas] == [{"producer_byte_rate": 1024.0}]
    assert metadata.features.level("group.version") == 0 and metadata.features.metadata_version == 30


def test_a_snapshot_holds_what_the_log_before_it_says(written: Written) -> None:
    entries = entries_of(written.log)
    compared = 0
    for name, data in written.snapshots.items():
        snapshot = read_snapshot(data)
        assert snapshot.kraft_version == 1 and snapshot.voters is not None
        image = Metadata()
        image.load(snapshot.records, name.offset - 1, name.epoch)
        assert image == replayed(entries, name.offset)
        compared += name.offset > 0
    assert compared > 0, "Kafka has taken no snapshot"


def is_served(record: MetadataRecord) -> bool:
    """But for levels of features that are not served here."""
    return not (isinstance(record, ledger.FeatureLevelRecord) and record.name in NOT_SERVED)


def test_the_first_records_are_ours(written: Written) -> None:
    assert list(filter(is_served, read_snapshot(written.bootstrap).records)) == fresh_records()
    ours = SmallCluster(brokers=0).log
    kafkas = [entry.record for entry in entries_of(written.log) if entry.record is not None and is_served(entry.record)]
    assert kafkas[: len(ours)] == ours


def test_the_quorum_state_is_written_as_kafka_writes_it(written: Written) -> None:
    state, version = decode_quorum_state(written.quorum_state)
    assert encode_quorum_state(state, version) == written.quorum_state
    assert state.leader_id == 1


# --- ours, judged by Kafka


def our_log() -> tuple[bytes, SmallCluster, int]:
    """A log of everything that a small cluster has done, in batches of a few records; where its records begin."""
    voters = VotersRecord(
        version=0,
        voters=[
            VotersRecord.Voter(
                voter_id=1,
                voter_directory_id=bytes(range(16)),
                endpoints=[VotersRecord.Voter.Endpoint(name="CONTROLLER", host="localhost", port=9093)],
                kraft_version_feature=VotersRecord.Voter.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=1
                ),
            )
        ],
    )
    # Kafka writes version 0 whatever kraft.version is, and its tool reads no other.
    leader = LeaderChangeMessage(version=0, leader_id=1, voters=[Voter(voter_id=1)], granting_voters=[])
    control: list[ControlMessage] = [leader, KRaftVersionRecord(version=0, kraft_version=1), voters]
    cluster = SmallCluster(brokers=3, min_insync_replicas=2)
    cluster.create("orders", 4, 3, configs={"retention.ms": "5"})
    cluster.do(cluster.controller.alter_client_quotas([quota({"user": None}, {"producer_byte_rate": 5.0})]))
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    cluster.start(2, life=2)
    cluster.heartbeat(1)
    cluster.do(cluster.controller.unregister_broker(3))
    data = build_control_batch(control, base_offset=0, epoch=1, now_ms=1000)
    for first in range(0, len(cluster.log), 5):
        records = cluster.log[first : first + 5]
        data += build_batch(records, base_offset=len(control) + first, epoch=1, now_ms=1000 + first)
    return bytes(data), cluster, len(control)


def judged(file: Path) -> tuple[list[dict[str, object]], str]:
    """The records of a file as Kafka's reader prints them, and all that it said."""
    try:
        text = run_tool(DUMP_LOG, "--cluster-metadata-decoder", "--files", file, merged=True)
    except OracleFailed as failure:
        return [], str(failure)
    payloads = [line.split("payload: ", 1)[1] for line in text.splitlines() if "payload: " in line]
    return [json.loads(payload) for payload in payloads if payload.startswith("{")], text


def content(said: str) -> str:
    """Without the paths, for a complaint is told by its words."""
    return "\n".join(line for line in said.splitlines() if not line.startswith("Dumping "))


def is_content(said: str) -> bool:
    return "isvalid: false" not in said and "rror" not in content(said) and "xception" not in content(said)


def test_kafka_reads_our_log(tmp_path: Path) -> None:
    data, cluster, first = our_log()
    (tmp_path / LOG).write_bytes(data)
    records, text = judged(tmp_path / LOG)
    assert is_content(text), text
    assert f"| offset: {first} " in text and "KRaftVoters" in text and "LeaderChange" in text
    assert len(records) == len(cluster.log)
    names = {declared.__name__.lower() for declared in RECORDS.values()}
    assert {str(record["type"]).replace("_", "").lower() for record in records} <= names
    for theirs, ours in zip(records, cluster.log, strict=True):
        assert str(theirs["type"]).replace("_", "").lower() == type(ours).__name__.lower()
        assert theirs["version"] == written_version(ours)


def test_kafka_reads_our_snapshot(tmp_path: Path) -> None:
    _, cluster, _ = our_log()
    metadata = cluster.metadata
    pieces = build_snapshot(metadata.records(), epoch=1, now_ms=5, last_contained_log_timestamp_ms=4, kraft_version=1)
    file = tmp_path / snapshot_name(SnapshotId(metadata.offset + 1, 1))
    file.write_bytes(b"".join(pieces))
    records, text = judged(file)
    assert is_content(text), text
    assert len(records) == len(list(metadata.records()))
    assert "SnapshotHeader" in text and "SnapshotFooter" in text


def test_kafka_does_not_read_a_record_that_nobody_knows(tmp_path: Path) -> None:
    """The judge judges."""
    data, _, _ = our_log()
    damaged = bytearray(data)
    header = list(batch.headers(data))[1]
    damaged[header.end - 4] ^= 0xFF
    (tmp_path / LOG).write_bytes(damaged)
    _, text = judged(tmp_path / LOG)
    assert not is_content(text)


# --- Kafka's metadata shell, as the judge of both

IMAGE = ("acls", "clientQuotas", "cluster", "configs", "features", "producerIds", "topics")  # no SCRAM, so far


def our_whole_log(folder: Path) -> bytes:
    """A node of ours does what Kafka's has done for `written`, and is looked at in its second life."""
    settings = {key.replace(".", "_"): value for key, value in SETTINGS.items() if not key.startswith("metadata.log.")}
    with broker_in_thread(folder, None, **settings) as broker, closing(Client(*broker.addresses[LISTENER])) as client:
        do_everything(client)
    with broker_in_thread(folder, None, **settings) as broker:
        deadline = time.monotonic() + PATIENCE_S
        while not list(broker.metadata.brokers.controllers):  # it says where it listens when it has the time
            assert time.monotonic() < deadline
            time.sleep(POLL_S)
        return (folder / "__cluster_metadata-0" / LOG).read_bytes()


def walked(tools: KafkaTools, log: Path) -> str:
    """What the shell shows of the image that a log leads to, without what is another each time."""
    result = tools("shell-commands", str(log), *(f"tree /image/{part}" for part in IMAGE))
    for pattern, placeholder in (
        (r"(?<![\w-])[\w-]{22}(?=[],:\n])", "an id"),
        (r"port=\d+", "a port"),
        (r"\bepoch=\d+", "an epoch"),
        (r" *finalized_(share|streams)\.version:\n *1\n", ""),  # which are not served here
        (r"cordonedDirectories=(null|\[\])", "none cordoned"),  # Kafka's broker says so in its first heartbeat
    ):
        result = re.sub(pattern, placeholder, result)
    return result


def test_kafkas_shell_shows_the_same_of_our_log_and_of_its_own(written: Written, tmp_path: Path) -> None:
    logs = {"kafka": written.log, "ours": our_whole_log(tmp_path / "data")}
    for name, content in logs.items():
        (tmp_path / f"{name}.log").write_bytes(content)
    with closing(KafkaTools("", with_shell=True)) as tools:
        kafka, ours = (walked(tools, tmp_path / f"{name}.log") for name in logs)
    assert "PartitionRegistration(" in kafka and "user(ann)" in kafka
    assert ours == kafka
