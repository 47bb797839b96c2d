"""`trioka storage format` and Kafka's `StorageTool format` write the same first records, and know the same releases."""

import json
from pathlib import Path

import pytest
from oracle import OracleFailed, run_program, run_tool
from support.command_line import command

from trioka.cli.terminal.failure import Exit
from trioka.cluster.image.feature_levels import RELEASES, fresh_levels, metadata_version_of
from trioka.cluster.image.features import KRAFT_VERSION, NOT_SERVED
from trioka.cluster.quorum.snapshot import Snapshot, read_snapshot

pytestmark = pytest.mark.usefixtures("apache_kafka")

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
STORAGE_TOOL = "kafka.tools.StorageTool"
CREDENTIALS = (
    "SCRAM-SHA-256=[name=alice,password=alice-secret,salt=MWx2NHBkbnc0ZndxN25vdGN4bTB5Y3k=]",
    'SCRAM-SHA-512=[name=bob,iterations=8192,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Y3k=",password="bob=secret"]',
    'SCRAM-SHA-512=[name=carol,salt="N3E=",saltedpassword="mT0yyUUxnlJaC99HXgRTSYlbuqa4FSGtJCJfTMvjYCE="]',
)
WRONG = (
    ("-r", "4.4"),
    ("-r", "4.0", "-f", "metadata.version=25"),
    ("-r", "3.9", "-f", "eligible.leader.replicas.version=1"),
    ("-r", "3.5-IV1", "-S", CREDENTIALS[0]),
    ("-S", "SCRAM-SHA-256=[name=ann,password=secret,iterations=16385]"),
)


def formatted(folder: Path, *flags: str, by_kafka: bool) -> Snapshot | None:
    """The first records, or None if it was refused."""
    folder.mkdir()
    config, data = folder / "server.properties", folder / "data"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={data}\n"
    )
    arguments = ("format", "-t", CLUSTER_ID, "-c", str(config), "--standalone", *flags)
    try:
        if by_kafka:
            run_tool(STORAGE_TOOL, *arguments)
        elif command("storage", *arguments).code != Exit.OK:
            return None
    except OracleFailed:
        return None
    return read_snapshot((data / "bootstrap.checkpoint").read_bytes())


def test_releases_begin_with_the_same_levels() -> None:
    short = {name.partition("-")[0] for name in RELEASES}
    names = [*RELEASES, *sorted(short), "3.5.1", "4.3.1", "3.2", "4.4", "4.0-IV9"]
    for line in run_program("Releases", *names).splitlines():
        result = json.loads(line)
        release = result.pop("release")
        level = metadata_version_of(release)
        result.pop(KRAFT_VERSION, None)
        known = {} if level is None else fresh_levels(level)
        assert known == {name: at for name, at in result.items() if name not in ("error", *NOT_SERVED) and at}, release


def test_both_write_the_same_first_records(tmp_path: Path) -> None:
    flags = ["-r", "4.0", "-f", "transaction.version=1"]
    for credential in CREDENTIALS:
        flags += ["--add-scram", credential]
    ours, theirs = (formatted(tmp_path / str(by), *flags, by_kafka=by) for by in (False, True))
    assert ours is not None and theirs is not None
    assert len(theirs.records) == 3 + len(CREDENTIALS)
    assert ours.records == theirs.records


@pytest.mark.parametrize("flags", WRONG, ids=" ".join)
def test_both_refuse_the_same(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert [formatted(tmp_path / str(by), *flags, by_kafka=by) for by in (False, True)] == [None, None]
