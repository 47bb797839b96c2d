"""Every command of the runbook is run, against a broker that was broken in the way the page speaks of."""

import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from support.certificates import authority, signed
from support.command_line import broker_at, command, home
from support.doc_commands import commands_in, install_commands, must_end_as_documented
from support.sasl import PASSWORDS, SASL, SASL_SETTINGS
from support.serving import HOST, LISTENER, broker_in_thread
from support.tls_broker import SECURE, tls_settings

from trioka.cli.cluster.cluster_name import local_folder
from trioka.cli.cluster.local_cluster import LocalCluster
from trioka.protocol.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from trioka.storage.layout import Kind, segment_file

__all__ = ["home"]

PATIENCE_S = 60
PAGE = Path(__file__).resolve().parents[2] / "docs" / "OPERATIONS.md"


def chapters() -> dict[str, str]:
    """The page's chapters by their headings; what stands before the first is one without."""
    pieces = re.split(r"(?m)^## (.*)$", PAGE.read_text(encoding="utf-8"))
    return {"": pieces[0], **dict(zip(pieces[1::2], pieces[2::2], strict=True))}


def furnish(at: str) -> None:
    """A topic with records, and a group that has read the first of them."""
    assert command("topics", "create", "orders", at=at).code == 0
    assert command("produce", "orders", at=at, stdin=b"".join(b"%d\n" % n for n in range(200))).code == 0
    assert command("consume", "orders", "-g", "billing", "-n", "1", at=at).code == 0


@contextmanager
def in_order(folder: Path) -> Iterator[str]:
    with broker_at(folder / "data") as at:
        furnish(at)
        yield at


@contextmanager
def advertises_a_wrong_address(folder: Path) -> Iterator[str]:
    with broker_at(folder / "data", advertised_listeners="PLAINTEXT://127.0.0.1:1") as at:
        yield at


@contextmanager
def three_nodes(*dead: str) -> Iterator[str]:
    """Of which these were killed."""
    try:
        assert command("cluster", "up", "--nodes", "3", "--port", "0").code == 0
        local = LocalCluster.load(local_folder())
        assert local is not None
        at = ",".join(f"localhost:{node.port}" for node in local.nodes.values())
        assert command("topics", "create", "orders", "--partitions", "3", at=at).code == 0
        for node in dead:
            assert command("cluster", "kill", node).code == 0
        # With a quorum, replicas are missing once the session of a broker has ended.
        seen_by = "under-replicated" if len(dead) == 1 else "status"
        until(lambda: command("cluster", seen_by, "--timeout", "5s").code != 0)
        yield ""
    finally:
        assert command("cluster", "down", "--delete-data").code == 0


def lacks_a_broker(folder: Path) -> AbstractContextManager[str]:
    return three_nodes("2")


def lacks_a_majority(folder: Path) -> AbstractContextManager[str]:
    return three_nodes("2", "3")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.1)


@contextmanager
def has_a_flipped_bit(folder: Path) -> Iterator[str]:
    with in_order(folder) as at:
        pass
    path = folder / "data" / "orders-0" / segment_file(0, Kind.LOG)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    yield at


@contextmanager
def has_a_full_disk(folder: Path) -> Iterator[str]:
    with broker_in_thread(f"{folder / 'data'},{folder / 'full'}") as broker:
        at = f"{HOST}:{broker.addresses[LISTENER][1]}"
        furnish(at)
        broker.directories[1].volume.fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        yield at


@contextmanager
def was_stopped(folder: Path) -> Iterator[str]:
    with in_order(folder) as at:
        pass
    yield at


@contextmanager
def is_tiered(folder: Path, **more: object) -> Iterator[str]:
    """With two segments in the object store."""
    settings: dict[str, object] = {
        "remote_log_storage_system_enable": "true",
        "trioka_tier_url": (folder / "store").as_uri(),
        "rlmm_config_remote_log_metadata_topic_replication_factor": 1,
        **more,
    }
    with broker_at(folder / "data", **settings) as at:
        configs = ("--config", "remote.storage.enable=true", "--config", "internal.segment.bytes=2000")
        assert command("topics", "create", "orders", *configs, at=at).code == 0
        for _ in range(6):
            assert command("produce", "orders", at=at, stdin=b"x" * 900 + b"\n").code == 0
        until(lambda: len(list((folder / "store").rglob("*.rsm-manifest"))) >= 2)
        until(lambda: command("tier", "ls", "orders", at=at).out.count("COPY_SEGMENT_FINISHED") >= 2)
        yield at


@contextmanager
def cannot_copy(folder: Path) -> Iterator[str]:
    with is_tiered(folder) as at:
        (folder / "store").rename(folder / "unmounted")
        (folder / "store").write_text("not a directory")
        for _ in range(6):
            assert command("produce", "orders", at=at, stdin=b"x" * 900 + b"\n").code == 0
        yield at


@contextmanager
def lacks_an_object(folder: Path) -> Iterator[str]:
    with is_tiered(folder) as at:
        next((folder / "store").rglob("*.log")).unlink()
        yield at


@contextmanager
def has_lost_its_memory(folder: Path) -> Iterator[str]:
    disk, memory = folder / "data", folder / "memory"
    settings = {"trioka_log_dirs_memory": str(memory)}
    with broker_at(f"{disk},{memory}", **settings) as at:
        created = command(
            "topics", "create", "orders", "--config", "trioka.log.dir.class=memory", "--replication-factor", "1", at=at
        )
        assert created.code == 0
        assert command("produce", "orders", at=at, stdin=b"a record\n").code == 0
    shutil.rmtree(memory)
    with broker_at(f"{disk},{memory}", **settings) as at:
        assert "orders" in command("topics", "describe", "--unavailable-partitions", at=at).out
        yield at


@contextmanager
def is_lost(folder: Path) -> Iterator[str]:
    with is_tiered(folder, trioka_tier_restore_copies_ms=50):
        until(lambda: bool(list((folder / "store").glob("_trioka/*/metadata/*.checkpoint"))))
    shutil.rmtree(folder / "data")
    yield ""


@contextmanager
def shows_a_certificate_of_another_authority(folder: Path) -> Iterator[str]:
    trusted, other = authority(), authority("CN=Other")
    with broker_in_thread(folder / "data", None, **tls_settings(signed(other), other, folder)) as broker:
        (folder / "ca.pem").write_text(trusted.chain_pem)
        (folder / "client.properties").write_text(
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n"
        )
        yield f"{HOST}:{broker.addresses[SECURE][1]}"


@contextmanager
def does_not_know_alice(folder: Path) -> Iterator[str]:
    with broker_in_thread(folder / "data", None, **SASL_SETTINGS) as broker:
        for file, module, mechanism, user in (
            ("admin", PLAIN_MODULE, "PLAIN", "root"),
            ("client", SCRAM_MODULE, "SCRAM-SHA-512", "alice"),
        ):
            (folder / f"{file}.properties").write_text(
                f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
                f'sasl.jaas.config={module} required username="{user}" password="{PASSWORDS[user]}";\n'
            )
        yield f"{HOST}:{broker.addresses[SASL][1]}"


@contextmanager
def throttles_alice(folder: Path) -> Iterator[str]:
    with in_order(folder) as at:
        assert command("quota", "set", "producer_byte_rate=1MB", "--user", "alice", at=at).code == 0
        yield at


BROKEN: Mapping[str, Callable[[Path], AbstractContextManager[str]]] = {
    "": in_order,
    "Clients cannot connect": advertises_a_wrong_address,
    "Growing lag": in_order,
    "Under-replicated": lacks_a_broker,
    "Lost quorum": lacks_a_majority,
    "Disk full": has_a_full_disk,
    "Corrupt segment": has_a_flipped_bit,
    "After a crash": was_stopped,
    "Copies to the object store lag": cannot_copy,
    "Objects are missing from the object store": lacks_an_object,
    "Memory is lost": has_lost_its_memory,
    "The cluster is gone, the bucket is there": is_lost,
    "TLS handshakes fail": shows_a_certificate_of_another_authority,
    "Logins fail": does_not_know_alice,
    "Throttled clients": throttles_alice,
    "Upgrade": in_order,
    "Capacity": in_order,
    "Quotas": in_order,
}


@pytest.mark.parametrize("chapter", chapters())
def test_the_commands_of_the_chapter_end_as_it_says(chapter: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    install_commands(home, monkeypatch)
    lines = commands_in(chapters()[chapter])
    assert lines
    with BROKEN[chapter](home) as at:
        for line in lines:
            must_end_as_documented(line, at or None)


@pytest.mark.parametrize("chapter", [name for name in chapters() if name not in ("", "Upgrade", "Capacity", "Quotas")])
def test_every_chapter_has_the_same_shape(chapter: str) -> None:
    text = chapters()[chapter]
    places = [
        text.find(word)
        for word in (
            "**Symptom**",
            "**Confirm**",
            "**Is data at risk?**",
            "**Do now**",
            "**Do not**",
            "**Why**",
            "**Prevent**",
        )
    ]
    assert -1 not in places and places == sorted(places)
