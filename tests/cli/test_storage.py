"""`trioka storage`: what a node must find before it starts, written once and never over something else."""

from pathlib import Path
from random import Random

import pytest
from commanding import command

from trioka.broker.broker import Broker
from trioka.broker.clock import SystemClock
from trioka.broker.config.server import load
from trioka.broker.identity import NotFormatted
from trioka.broker.properties import parse_properties
from trioka.cli.failure import Exit
from trioka.cluster.snapshot import read_snapshot
from trioka.storage.disk import OsDisk

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
FIRST, SECOND = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
METADATA = "__cluster_metadata-0"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write(tmp_path)


def write(tmp_path: Path, **changed: str) -> Path:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093,127.0.0.1:9094",
        "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
    } | {key.replace("_", "."): value for key, value in changed.items()}
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_first_voters_stand_in_the_snapshot_of_nothing(config: Path, tmp_path: Path) -> None:
    voters = f"1@127.0.0.1:9093:{FIRST},2@127.0.0.1:9094:{SECOND}"
    assert command("storage", "format", "-t", CLUSTER, "-c", str(config), "-I", voters).code == Exit.OK
    snapshot = read_snapshot((tmp_path / "a" / METADATA / f"{0:020d}-{0:010d}.checkpoint").read_bytes())
    assert snapshot.kraft_version == 1
    assert snapshot.voters is not None
    assert [(voter.voter_id, voter.endpoints[0].port) for voter in snapshot.voters.voters] == [(1, 9093), (2, 9094)]
    assert f"directory.id={FIRST}" in (tmp_path / "a" / "meta.properties").read_text()
    assert f"cluster.id={CLUSTER}" in (tmp_path / "b" / "meta.properties").read_text()
    assert not (tmp_path / "b" / METADATA).exists()


def test_what_is_formatted_is_left_as_it_is(config: Path, tmp_path: Path) -> None:
    arguments = ("storage", "format", "-t", CLUSTER, "-c", str(config), "--standalone")
    assert command(*arguments).code == Exit.OK
    before = files(tmp_path)
    assert command(*arguments).code == Exit.EXISTS
    assert command(*arguments, "--ignore-formatted").code == Exit.OK
    assert files(tmp_path) == before


def test_info_says_whose_directories_these_are(config: Path, tmp_path: Path) -> None:
    assert command("storage", "info", "-c", str(config)).code == Exit.UNHEALTHY
    command("storage", "format", "-t", CLUSTER, "-c", str(config), "--standalone")
    ended = command("storage", "info", "-c", str(config), "-o", "json")
    assert ended.code == Exit.OK
    assert [(row["cluster_id"], row["node_id"], row["status"]) for row in ended.rows] == [(CLUSTER, 1, "formatted")] * 2


@pytest.mark.parametrize(
    "flags",
    [
        (),  # nobody says who votes first
        ("--standalone", "--no-initial-controllers"),
        ("-I", "1@127.0.0.1:9093"),
        ("-I", f"2@127.0.0.1:9093:{FIRST}"),  # it is not among them
        ("-I", f"1@127.0.0.1:9093:{FIRST},1@127.0.0.1:9094:{SECOND}"),
        ("--standalone", "-f", "no.such.feature=1"),
        ("--standalone", "-f", "metadata.version=9999"),
        ("--standalone", "-f", "kraft.version=0"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_and_writes_nothing(
    config: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    ended = command("storage", "format", "-t", CLUSTER, "-c", str(config), *flags)
    assert ended.code == Exit.USAGE
    assert list(files(tmp_path)) == ["server.properties"]


def test_a_node_that_is_not_the_only_voter_does_not_make_up_a_cluster(config: Path, tmp_path: Path) -> None:
    loaded = load(parse_properties(config.read_bytes()))
    broker = Broker(loaded.config, loaded.node, disk=OsDisk(), clock=SystemClock(), random=Random())
    with pytest.raises(NotFormatted, match="trioka storage format"):
        broker._open_directories()
    assert not [name for name in files(tmp_path) if name.endswith("meta.properties")]


def test_every_random_uuid_is_another_one() -> None:
    made = {command("storage", "random-uuid").out.strip() for _ in range(20)}
    assert len(made) == 20
    assert all(len(uuid) == 22 and not uuid.startswith("-") for uuid in made)
