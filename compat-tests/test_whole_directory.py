"""Apache Kafka and trioka live in each other's data directories.

Kafka writes a directory and stops, or is killed; trioka starts on it with the same server.properties, keeps all that
was there, changes things, and stops; Kafka starts again, and keeps all of that; then trioka once more. And trioka makes
a directory from nothing, on which Kafka starts. What a node keeps is told by its `portrait`.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from furnishing import change_everything, committed_offset, credentials, write_with_kafka, write_with_trioka
from portrait import TOPIC, ClusterDump, Name, differences, leader_epochs, portrait, quorum
from shared_directory import VOTERS_IN_THE_CONFIGURATION, VOTERS_IN_THE_LOG, SharedDirectory, take_snapshot
from support.serving import Client

from trioka.cluster.controller.bootstrap import fresh_records
from trioka.cluster.image.features import NOT_SERVED
from trioka.cluster.quorum.metadata_log import MetadataRecord, decode_record, written_version
from trioka.cluster.quorum.quorum_state import decode_quorum_state
from trioka.cluster.quorum.snapshot import parse_snapshot_name, read_snapshot
from trioka.protocol import batch
from trioka.protocol.internal_records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.primitives import uuid_text
from trioka.storage.directory import ForeignDirectory
from trioka.storage.files.checkpoint import read_clean_marker, read_offsets
from trioka.storage.files.disk import OsDisk
from trioka.storage.files.layout import BOOTSTRAP, CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS

pytestmark = pytest.mark.usefixtures("apache_kafka")

KINDS = (VOTERS_IN_THE_LOG, VOTERS_IN_THE_CONFIGURATION)
METADATA = "__cluster_metadata-0"


class Epochs(NamedTuple):
    quorum: dict[str, Any]
    leaders: dict[Name, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """A time in which one program lived in the directory."""

    found: ClusterDump
    left: ClusterDump
    epochs: Epochs
    secrets: Any = None  # what only Apache Kafka answers: users, the offset of a group, features
    path: Path  # the directory as it was left


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    home: SharedDirectory
    kafka: Station  # it wrote the directory
    trioka: Station
    kafka_again: Station
    trioka_again: Station
    killed: Path  # what Apache Kafka had written when it was not asked to stop

    @property
    def stations(self) -> tuple[Station, ...]:
        return self.kafka, self.trioka, self.kafka_again, self.trioka_again


@pytest.fixture(scope="module", params=KINDS)
def journey(request: pytest.FixtureRequest, apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    home = SharedDirectory(tmp_path_factory.mktemp("journey"), request.param)
    home.format()
    with home.kafka() as kafka, home.client() as client:
        write_with_kafka(kafka, client)
        wrote, epochs, secrets = portrait(client), epochs_of(client), secrets_of(client)
        killed = home.copied("killed")
        # One of the two is stopped as it should be; of the other nothing is left but its files.
        kafka.stop() if home.voters == VOTERS_IN_THE_LOG else kafka.kill()
    return Journey(
        home=home,
        kafka=Station(found=wrote, left=wrote, epochs=epochs, secrets=secrets, path=home.copied("kafka")),
        killed=killed,
        trioka=live_with_trioka(home),
        kafka_again=live_with_kafka(home),
        trioka_again=look_with_trioka(home),
    )


def live_with_trioka(home: SharedDirectory) -> Station:
    """Three times, so that there are two snapshots, with a log behind them, and the log before them can go."""

    def visit(client: Client) -> tuple[ClusterDump, Epochs]:
        found = portrait(client)
        change_everything(client, found, "trioka")
        return found, epochs_of(client)

    found, epochs = home.trioka(visit, then=take_snapshot)
    home.trioka(lambda client: None, then=take_snapshot)
    left = home.trioka(portrait)
    return Station(found=found, left=left, epochs=epochs, path=home.copied("trioka"))


def live_with_kafka(home: SharedDirectory) -> Station:
    with home.kafka() as kafka, home.client() as client:
        found, epochs, secrets = portrait(client), epochs_of(client), secrets_of(client)
        change_everything(client, found, "kafka")
        left = portrait(client)
        kafka.stop()
    return Station(found=found, left=left, epochs=epochs, secrets=secrets, path=home.copied("kafka-again"))


def look_with_trioka(home: SharedDirectory) -> Station:
    found, epochs = home.trioka(lambda client: (portrait(client), epochs_of(client)))
    return Station(found=found, left=found, epochs=epochs, path=home.copied("trioka-again"))


def epochs_of(client: Client) -> Epochs:
    return Epochs(quorum(client), leader_epochs(client))


def secrets_of(client: Client) -> Any:
    return credentials(client), committed_offset(client), features_not_served(client)


def features_not_served(client: Client) -> dict[str, int]:
    """The levels that Apache Kafka tells, and trioka keeps and does not tell."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    result = client.ask(request, 3).finalized_features
    return {each.name: each.max_version_level for each in result if each.name in NOT_SERVED}


def written_records(path: Path) -> Iterator[tuple[MetadataRecord, int]]:
    """What the metadata log still has, each with the version in which it was written."""
    for segment in sorted((path / METADATA).glob("*.log")):
        data = segment.read_bytes()
        for header in batch.headers(data):
            if not header.is_control:
                yield from (decode_record(record.value or b"") for record in batch.records(data, header))


def records_of(path: Path) -> list[MetadataRecord]:
    return [record for record, _ in written_records(path)]


def snapshots_of(path: Path) -> list[int]:
    names = [parse_snapshot_name(file.name) for file in (path / METADATA).iterdir()]
    return sorted(name.offset for name in names if name is not None)


# What is kept --------------------------------------------------------------------------------------------------------


def test_apache_kafka_wrote_what_it_should_have(journey: Journey) -> None:
    kept = journey.kafka.left
    assert kept["records"]["transactions", 0, "read_committed"]["aborted"]
    assert kept["offsets"]["moved-start", 0]["read_uncommitted", -2][0] == 50
    assert "deleted" not in kept["topics"] and "__transaction_state" in kept["topics"]
    assert kept["configs"][TOPIC, "configured"]["flush.messages"][0] == "7"
    open_transaction = kept["offsets"]["open-transaction", 0]
    assert open_transaction["read_committed", -1] != open_transaction["read_uncommitted", -1]
    users, offset, not_served = journey.kafka.secrets
    assert (users, offset) == ([("ann", [(1, 4096)])], 7)
    assert not_served == (
        {"share.version": 1, "streams.version": 1} if journey.home.voters == VOTERS_IN_THE_LOG else {}
    )
    features = {VOTERS_IN_THE_LOG: {"metadata.version": 30, "kraft.version": 1}}
    assert kept["features"].items() >= features.get(journey.home.voters, {"metadata.version": 11}).items()


def test_trioka_keeps_what_apache_kafka_left(journey: Journey) -> None:
    assert differences(journey.kafka.left, journey.trioka.found) == []


def test_trioka_keeps_what_apache_kafka_left_when_it_was_killed(journey: Journey) -> None:
    found = journey.home.trioka(portrait, overrides={"log.dirs": str(journey.killed)})
    assert differences(journey.kafka.left, found) == []


def test_apache_kafka_keeps_what_trioka_left(journey: Journey) -> None:
    assert differences(journey.trioka.left, journey.kafka_again.found) == []
    assert differences(journey.trioka.found, journey.trioka.left) != [], "trioka has changed nothing"


def test_apache_kafka_keeps_what_trioka_does_not_know(journey: Journey) -> None:
    assert journey.kafka_again.secrets == journey.kafka.secrets


def test_trioka_keeps_what_apache_kafka_left_the_second_time(journey: Journey) -> None:
    assert differences(journey.kafka_again.left, journey.trioka_again.found) == []
    assert differences(journey.kafka_again.found, journey.kafka_again.left) != [], "Kafka has changed nothing"


def test_trioka_keeps_what_it_had_when_it_was_killed(journey: Journey, tmp_path: Path) -> None:
    """The metadata log starts at a snapshot here, and the checkpoints say nothing of it."""
    path = copied(journey.trioka.path, tmp_path)
    (path / CLEAN_SHUTDOWN).unlink()
    found = journey.home.trioka(portrait, overrides={"log.dirs": str(path)})
    assert differences(journey.trioka.left, found) == []


def test_a_record_that_is_lost_is_noticed(journey: Journey, tmp_path: Path) -> None:
    """The judge judges. (With its recovery point, the partition would be taken for damaged, and not be served.)"""
    path = copied(journey.trioka.path, tmp_path)
    for file in (CLEAN_SHUTDOWN, RECOVERY_POINTS):
        (path / file).unlink()
    segment = max((path / "codecs-1").glob("*.log"))
    data = segment.read_bytes()
    segment.write_bytes(data[: list(batch.headers(data))[-1].position])
    found = journey.home.trioka(portrait, overrides={"log.dirs": str(path)})
    subjects = {each.split(" of ")[0] for each in differences(journey.trioka.left, found)}
    assert subjects == {"offsets", "producers", "records"}


def copied(path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(path, tmp_path / "copy"))


def test_the_directory_of_another_node_is_refused(journey: Journey, tmp_path: Path) -> None:
    path = copied(journey.trioka.path, tmp_path)
    other = {"log.dirs": str(path), "node.id": "2", "controller.quorum.voters": "2@127.0.0.1:9093"}
    with pytest.raises(ExceptionGroup) as refused:
        journey.home.trioka(portrait, overrides=other)
    assert refused.value.subgroup(ForeignDirectory) is not None


# How it is kept ------------------------------------------------------------------------------------------------------


def test_epochs_go_on_whoever_leads(journey: Journey) -> None:
    for before, after in zip(journey.stations, journey.stations[1:], strict=False):
        assert after.epochs.quorum["epoch"] > before.epochs.quorum["epoch"]
        assert after.epochs.quorum["voters"] == before.epochs.quorum["voters"]
        assert after.epochs.quorum["nodes"] == before.epochs.quorum["nodes"]
        for name, epoch in before.epochs.leaders.items():
            assert after.epochs.leaders[name] > epoch, name


def test_the_quorum_state_stays_in_its_version(journey: Journey) -> None:
    states = [decode_quorum_state((each.path / METADATA / "quorum-state").read_text()) for each in journey.stations]
    assert {version for _, version in states} == {1 if journey.home.voters == VOTERS_IN_THE_LOG else 0}
    result = [json.loads((each.path / METADATA / "quorum-state").read_text()) for each in journey.stations]
    assert len({tuple(each) for each in result}) == 1
    assert {(each["leaderId"], each["votedId"]) for each in result} == {(1, -1)}


def test_the_log_begins_at_a_snapshot(journey: Journey) -> None:
    """So that Kafka, when it started on it, cannot have read anything older."""
    path = journey.trioka.path
    first = min(int(segment.stem) for segment in (path / METADATA).glob("*.log"))
    snapshots = snapshots_of(path)
    assert len(snapshots) == 2 and 0 < first <= snapshots[0]
    state = read_snapshot(max((path / METADATA).glob("*.checkpoint")).read_bytes())
    assert (state.kraft_version, state.voters is not None) == (
        (1, True) if journey.home.voters == VOTERS_IN_THE_LOG else (0, False)
    )


def test_the_checkpoints_name_what_kafka_names_in_them(journey: Journey) -> None:
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        for each in (journey.trioka, journey.kafka_again):
            offsets = read_offsets(OsDisk(), str(each.path / name))
            topics = each.left["topics"]
            partitions = {(topic, index) for topic in topics for index in topics[topic]["partitions"]}
            assert set(offsets) == partitions


def test_a_clean_stop_names_the_broker_s_epoch(journey: Journey) -> None:
    """Whoever registers with it next keeps its place among the eligible leaders (KIP-966)."""
    for each in (journey.trioka, journey.kafka_again, journey.trioka_again):
        registrations = [record for record in records_of(each.path) if isinstance(record, RegisterBrokerRecord)]
        assert read_clean_marker(OsDisk(), str(each.path / CLEAN_SHUTDOWN)) == registrations[-1].broker_epoch


def test_who_stops_cleanly_is_fenced_and_leads_nothing(journey: Journey) -> None:
    """Otherwise the next life, if Kafka's controller decides about it, must wait for the session of the last to end."""
    for each in (journey.trioka, journey.kafka_again, journey.trioka_again):
        records = records_of(each.path)
        changes = [record for record in records if isinstance(record, BrokerRegistrationChangeRecord)]
        assert changes[-1].fenced == 1
        partitions = [record for record in records if isinstance(record, PartitionChangeRecord)]
        assert partitions[-1].leader == -1


def test_records_are_written_in_the_versions_of_the_cluster(journey: Journey) -> None:
    level = journey.kafka.left["features"]["metadata.version"]
    for each in journey.stations:
        for record, version in written_records(each.path):
            assert version == written_version(record, level), record
        newest = max((each.path / METADATA).glob("*.checkpoint"), default=None)
        data = b"" if newest is None else newest.read_bytes()
        for header in batch.headers(data):
            if not header.is_control:
                for decoded, version in (decode_record(record.value or b"") for record in batch.records(data, header)):
                    assert version == written_version(decoded, level), decoded


def test_each_life_registers_anew(journey: Journey) -> None:
    for each in (journey.trioka, journey.kafka_again, journey.trioka_again):
        records = records_of(each.path)
        registrations = [record for record in records if isinstance(record, RegisterBrokerRecord)]
        assert len({record.incarnation_id for record in registrations}) == len(registrations)
        directories = {tuple(record.log_dirs) for record in registrations}
        assert len(directories) == 1, "the directory has changed its name"


# From nothing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_apache_kafka_starts_on_a_directory_that_trioka_made(kind: str, tmp_path: Path) -> None:
    home = SharedDirectory(tmp_path, kind)

    def visit(client: Client) -> tuple[ClusterDump, dict[str, Any]]:
        write_with_trioka(client)
        return portrait(client), quorum(client)

    left, of_trioka = home.trioka(visit)
    with home.kafka() as kafka, home.client() as client:
        found, of_kafka = portrait(client), quorum(client)
        change_everything(client, found, "kafka")
        left_by_kafka = portrait(client)
        kafka.stop()
    assert differences(left, found) == []
    assert (of_kafka["voters"], of_kafka["nodes"]) == (of_trioka["voters"], of_trioka["nodes"])
    assert differences(left_by_kafka, home.trioka(portrait)) == []


def test_trioka_begins_a_directory_as_kafkas_tool_does(tmp_path: Path) -> None:
    home = SharedDirectory(tmp_path, VOTERS_IN_THE_LOG)
    home.trioka(lambda client: None)
    assert list(read_snapshot((home.path / BOOTSTRAP).read_bytes()).records) == fresh_records()
    ours = home.path.rename(tmp_path / "ours")
    home.format()
    nothing = "00000000000000000000-0000000000.checkpoint"
    of_kafka, of_trioka = (read_snapshot((path / METADATA / nothing).read_bytes()) for path in (home.path, ours))
    assert (of_trioka.kraft_version, of_trioka.records) == (of_kafka.kraft_version, of_kafka.records)
    assert of_kafka.voters is not None and of_trioka.voters is not None
    (his,), (mine,) = of_kafka.voters.voters, of_trioka.voters.voters
    assert (mine.voter_id, mine.endpoints, mine.kraft_version_feature) == (
        his.voter_id,
        his.endpoints,
        his.kraft_version_feature,
    )
    assert f"directory.id={uuid_text(mine.voter_directory_id)}" in (ours / "meta.properties").read_text()
