"""Every command on the pages about the command line is run, in its order, and ends as the page says."""

import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path

import pytest
from support.archive_objects import objects_of, sample_log
from support.archive_stores import put_objects
from support.command_line import command, home
from support.doc_commands import commands_in, install_commands, must_end_as_documented
from support.gateway import GatewayUnderTest
from support.sasl import PASSWORDS, SASL, SASL_SETTINGS
from support.serving import HOST, LISTENER, broker_in_thread

from trioka.cli.commands import COMMANDS
from trioka.protocol.sasl.jaas import PLAIN_MODULE

__all__ = ["home"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PATIENCE_S = 60.0
CHECK_INTERVAL_S = 0.05
PROPERTIES = (
    "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlog.dirs=data\n"
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.quorum.voters=1@localhost:9093\n"
)


def commands_of(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    if page == "CLI.md":
        return commands_in(text)
    cells = [row.split(" | ")[1] for row in re.findall(r"(?m)^\| (.* \| .*) \|$", text)[1:]]
    return [code.replace("\\|", "|") for cell in cells for code in re.findall(r"`([^`]*trioka [^`]*)`", cell)]


def until_tiered(at: str) -> None:
    """Waits for the first record about the topic `history`."""
    deadline = time.monotonic() + PATIENCE_S
    while command("tier", "ls", "history", at=at).code:
        assert time.monotonic() < deadline
        time.sleep(CHECK_INTERVAL_S)


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder with the files that the pages speak of, and a broker whose data is in it."""
    monkeypatch.chdir(home)
    (home / "server.properties").write_text(PROPERTIES)
    (home / "tiered").mkdir()
    put_objects((home / "tiered").as_uri(), objects_of(sample_log(rounds=4)))
    install_commands(home, monkeypatch)
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with broker_in_thread(
        home / "data",
        None,
        **SASL_SETTINGS,
        authorizer_class_name=authorizer,
        super_users="User:ANONYMOUS",
        delegation_token_secret_key="of the page",
        remote_log_storage_system_enable="true",
        trioka_tier_url=(home / "store").as_uri(),
        rlmm_config_remote_log_metadata_topic_replication_factor=1,
    ) as broker:
        secured = f"{HOST}:{broker.addresses[SASL][1]}"
        (home / "client.properties").write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN_MODULE} required username="alice" password="{PASSWORDS["alice"]}";\n'
        )
        words = ("context", "set", "secured", "--bootstrap-server", secured, "--command-config", "client.properties")
        assert command(*words).code == 0
        at = f"{HOST}:{broker.addresses[LISTENER][1]}"
        tiered = ("topics", "create", "history", "--config", "remote.storage.enable=true")
        assert command(*tiered, at=at).code == 0
        until_tiered(at)
        (home / "order.avsc").write_text('{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"int"}]}')
        (home / "basket.avsc").write_text('{"type":"array","items":"shop.Order"}')
        yield at


@pytest.mark.parametrize("page", ["CLI.md", "COMING-FROM-KAFKA.md"])
def test_every_line_of_the_page_does_what_it_says(page: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = commands_of(page)
    assert len(lines) > 20
    for wants_registry, some in groupby(lines, lambda line: line.startswith("trioka schemas")):
        with GatewayUnderTest(place, "--registry") if wants_registry else nullcontext() as gateway:
            if gateway is not None:
                monkeypatch.setenv("SCHEMA_REGISTRY_URL", gateway.http)
            for line in some:
                must_end_as_documented(line, place)


def test_the_page_has_an_example_of_every_command() -> None:
    shown = {word for line in commands_of("CLI.md") for word in re.findall(r"trioka ([a-z]+)", line)}
    assert {name for name, lazy in COMMANDS.items() if lazy.extra is None} <= shown
    for name, lazy in COMMANDS.items():
        if lazy.extra is not None:
            assert f"trioka {name}" in (DOCS / "CLI.md").read_text(encoding="utf-8")


def test_every_command_of_a_group_is_on_the_page() -> None:
    page = (DOCS / "CLI.md").read_text(encoding="utf-8")
    for name in (
        "topics",
        "groups",
        "config",
        "segments",
        "context",
        "cluster",
        "storage",
        "user",
        "acl",
        "quota",
        "token",
        "archive",
        "tier",
        "schemas",
    ):
        listed = command(name, "--help").out.split("Commands:")[1].split("\n")
        inside = [line.split()[0] for line in listed if line.strip()]
        assert [each for each in inside if f"trioka {name} {each}" not in page] == []
