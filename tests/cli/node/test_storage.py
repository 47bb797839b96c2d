"""`trioka storage`: what a node must find before it starts, written once and never over something else."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
import trio
from mutants.plant import assert_noticed
from support.command_line import command
from support.serving import on_trio

from trioka.broker.broker import Broker
from trioka.broker.clock import SystemClock
from trioka.broker.config.properties import parse_properties
from trioka.broker.config.server import load
from trioka.broker.membership.identity import NotFormatted
from trioka.cli.terminal.failure import Exit
from trioka.cluster.image.feature_levels import RELEASES, fresh_levels, metadata_version_of
from trioka.cluster.image.features import FRESH_LEVELS
from trioka.cluster.quorum.metadata_log import LATEST_METADATA_VERSION, MetadataRecord
from trioka.cluster.quorum.snapshot import read_snapshot
from trioka.cluster.security import scram
from trioka.protocol.internal_records.metadata import FeatureLevelRecord
from trioka.storage.files.disk import OsDisk

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
        (),  # without initial voters
        ("--standalone", "--no-initial-controllers"),
        ("-I", "1@127.0.0.1:9093"),
        ("-I", f"2@127.0.0.1:9093:{FIRST}"),  # it is not among them
        ("-I", f"1@127.0.0.1:9093:{FIRST},1@127.0.0.1:9094:{SECOND}"),
        ("--standalone", "-f", "no.such.feature=1"),
        ("--standalone", "-f", "metadata.version=9999"),
        ("--standalone", "-f", "kraft.version=0"),
        ("--standalone", "-r", "4.4"),
        ("--standalone", "-r", "4.0", "-f", "metadata.version=25"),
        ("--standalone", "-r", "3.9", "-f", "eligible.leader.replicas.version=1"),
        ("--standalone", "-r", "3.5-IV1", "-S", "SCRAM-SHA-256=[name=ann,password=s3cret]"),
        *(
            ("--standalone", "-S", credential)
            for credential in (
                "name=ann,password=s3cret",
                "SCRAM-SHA-1=[name=ann,password=s3cret]",
                "SCRAM-SHA-256=name=ann,password=s3cret",
                "SCRAM-SHA-256=[password=s3cret]",
                "SCRAM-SHA-256=[name=ann]",
                "SCRAM-SHA-256=[name=ann,password=s3cret,iterations=4095]",
                "SCRAM-SHA-256=[name=ann,password=s3cret,iterations=16385]",
                "SCRAM-SHA-256=[name=ann,saltedpassword=czNjcmV0]",
                "SCRAM-SHA-256=[name=ann,salt=s3cret!,saltedpassword=czNjcmV0]",
                "SCRAM-SHA-256=[name=ann,password=s3cret,colour=red]",
            )
        ),
    ],
)
def test_what_makes_no_sense_is_one_sentence_and_writes_nothing(
    config: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    ended = command("storage", "format", "-t", CLUSTER, "-c", str(config), *flags)
    assert ended.code == Exit.USAGE
    assert list(files(tmp_path)) == ["server.properties"]
    assert "s3cret" not in ended.out + ended.stderr


def first_records(folder: Path) -> list[MetadataRecord]:
    return list(read_snapshot((folder / "a" / "bootstrap.checkpoint").read_bytes()).records)


def test_a_cluster_may_begin_as_one_of_an_older_release(config: Path, tmp_path: Path) -> None:
    flags = ("--standalone", "--release-version", "4.0", "-f", "transaction.version=1")
    assert command("storage", "format", "-t", CLUSTER, "-c", str(config), *flags).code == Exit.OK
    assert first_records(tmp_path) == [
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="transaction.version", feature_level=1),
    ]


def test_a_release_is_its_last_level_and_the_newest_is_what_a_cluster_begins_with() -> None:
    assert (metadata_version_of("3.5"), metadata_version_of("3.5.1"), metadata_version_of("3.5-IV1")) == (11, 11, 10)
    assert [metadata_version_of(unknown) for unknown in ("3.2", "4.4", "", "nope", "4.0-IV9")] == [None] * 5
    assert RELEASES["4.3-IV0"] == LATEST_METADATA_VERSION
    assert fresh_levels(LATEST_METADATA_VERSION) == FRESH_LEVELS


# RFC 7677, 3: user, "pencil", 4096 iterations. The keys follow from the proofs that stand there.
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
AUTH_MESSAGE = (
    b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)
PROOF, SIGNATURE = (
    b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="),
    "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


def keeps_what_the_rfc_keeps(module: ModuleType) -> None:
    text = f'SCRAM-SHA-256=[name=user,password=pencil,salt="{b64encode(SALT).decode()}",iterations=4096]'
    kept = module.credential_of(text, bytes(range(1, 18)))
    assert (kept.name, kept.mechanism, kept.salt, kept.iterations) == ("user", 1, SALT, 4096)
    assert b64encode(hmac.digest(kept.server_key, AUTH_MESSAGE, "sha256")).decode() == SIGNATURE
    signed = hmac.digest(kept.stored_key, AUTH_MESSAGE, "sha256")
    client_key = bytes(a ^ b for a, b in zip(PROOF, signed, strict=True))
    assert hashlib.sha256(client_key).digest() == kept.stored_key
    again = module.credential_of("SCRAM-SHA-512=[name=user,password=pencil]", bytes(range(100, 117)))
    assert (again.mechanism, len(again.salt), len(again.stored_key), again.iterations) == (2, 25, 64, 4096)
    assert again.salt.isalnum()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("stored_key=keys.stored_key", "stored_key=keys.server_key"),
        ("server_key=keys.server_key", "server_key=keys.stored_key"),
        ('fields["password"], salt, iterations', 'fields["password"], salt, iterations + 1'),
        ("value = value[1:-1]", "pass"),
    ],
)
def test_a_credential_is_kept_as_the_rfc_has_it(right: str, wrong: str) -> None:
    assert_noticed(scram, right, wrong, keeps_what_the_rfc_keeps)


def test_credentials_stand_in_the_log_and_survive(tmp_path: Path) -> None:
    """Through the log, a snapshot, and starts of the broker; and no password anywhere."""
    config = write(tmp_path, listeners="PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0")
    credentials = ("-S", "SCRAM-SHA-256=[name=ann,password=s3cret]", "-S", "SCRAM-SHA-512=[name=ben,password=s3cret]")
    assert command("storage", "format", "-t", CLUSTER, "-c", str(config), "--standalone", *credentials).code == Exit.OK
    written = first_records(tmp_path)[-2:]

    async def live() -> None:
        loaded = load(parse_properties(config.read_bytes()))
        broker = Broker(loaded.config, loaded.node, disk=OsDisk(), clock=SystemClock(), random=Random())
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            assert list(broker.metadata.access.scram_records()) == written
            assert await broker.quorum.take_snapshot() is not None
            nursery.cancel_scope.cancel()

    for _ in range(2):
        on_trio(live)()
    assert not [name for name, data in files(tmp_path).items() if b"s3cret" in data]


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
