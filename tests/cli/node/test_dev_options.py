"""`trioka dev` and `run`: addresses, configuration keys, and where data is kept for a while."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.dev_process import dev
from support.serving import Client

from trioka.cli.node import server, temp_folders
from trioka.cli.node.run import run
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest

COMMAND = [sys.executable, "-m", "trioka"]
BROKER = 4


def value_of(key: str, port: int) -> str | None:
    resource = DescribeConfigsRequest.Resource(resource_type=BROKER, resource_name="1", configuration_keys=[key])
    with closing(Client("127.0.0.1", port)) as client:
        response = client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    (config,) = response.results[0].configs
    return config.value  # type: ignore[no-any-return]


def test_dev_sets_keys_from_the_environment_and_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "4")
    monkeypatch.setenv("KAFKA_LOG_RETENTION_MS", "1000000")
    with dev(tmp_path, "--set", "num.partitions=5") as (address, _):
        port = int(address.rpartition(":")[2])
        assert value_of("num.partitions", port) == "5"
        assert value_of("log.retention.ms", port) == "1000000"


def test_dev_listens_and_advertises_as_configured(tmp_path: Path) -> None:
    with dev(tmp_path, "--host", "127.0.0.2", "--advertise", "kafka.example:19092") as (address, message):
        assert address == "kafka.example:19092"
        assert "produce -b kafka.example:19092 orders" in message
    with dev(tmp_path, "--host", "0.0.0.0", "--advertise", "localhost") as (address, _):
        name, _, port = address.rpartition(":")
        assert name == "localhost"
        with closing(Client("127.0.0.3", int(port))) as client:
            (broker,) = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 1).brokers
        assert (broker.host, broker.port) == ("localhost", int(port))


def test_run_passes_addresses_and_keys_to_its_broker() -> None:
    shown = 'echo "$KAFKA_BOOTSTRAP_SERVERS"; "$PYTHON" -m trioka config get num.partitions --broker 1'
    flags = ["--set", "num.partitions=6", "--host", "0.0.0.0", "--advertise", "localhost"]
    environment = {**os.environ, "PYTHON": sys.executable}
    found = subprocess.run(
        [*COMMAND, "run", *flags, "--", "sh", "-c", shown], env=environment, capture_output=True, text=True, check=True
    )
    address, partitions = found.stdout.split()
    assert address.startswith("localhost:")
    assert partitions == "6"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--topic", "a b:3"], "the name of a topic has letters, digits"),
        (["--topic", "..:3"], "the name of a topic has letters, digits"),
        (["--topic", "orders:²"], "must be NAME or NAME:PARTITIONS"),
        (["--host", "0.0.0.0"], "needs --advertise HOST"),
        (["--host", "a b"], "--host a b must be a name or an address"),
        (["--advertise", "a:b:c"], "--advertise a:b:c must be HOST or HOST:PORT"),
        (["--advertise", "a:99999"], "--advertise a:99999 must be HOST or HOST:PORT"),
        (["--set", "num.partitions"], "--set 'num.partitions' must have the form key=value"),
        (["--set", "num.partitions=x"], "num.partitions"),
        (["--topic", "orders:20000"], "topic orders was not created: "),
        (["--nodes", "3", "--host", "0.0.0.0"], "--host and --advertise are for one node"),
        (["--nodes", "3", "--set", "x"], "--set 'x' must have the form key=value"),
    ],
)
def test_a_wrong_option_is_one_sentence_before_anything_starts(flags: list[str], reason: str) -> None:
    found = subprocess.run([*COMMAND, "dev", "--port", "0", *flags], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stdout == ""
    assert len(found.stderr.splitlines()) == 1
    assert found.stderr.startswith("error: ")
    assert reason in found.stderr


def test_folders_of_killed_brokers_are_removed_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temp_folders, "FAST_FOLDER", str(tmp_path))
    monkeypatch.setattr(temp_folders, "MIN_FREE_BYTES", 0)
    abandoned, used = tmp_path / "trioka-x-1", temp_folders.new_folder("trioka-x-")
    abandoned.mkdir()
    (abandoned / temp_folders.OWNER).touch()
    (abandoned / "data").touch()
    temp_folders.sweep("trioka-x-")
    assert not abandoned.exists()
    assert Path(used).is_dir()
    temp_folders.remove(used)
    assert not Path(used).exists()


def test_a_small_memory_file_system_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temp_folders, "free_bytes", lambda folder: 64 << 20)
    assert temp_folders.place() != temp_folders.FAST_FOLDER
    folder = temp_folders.new_folder(server.TEMP_PREFIX)
    assert server._kept(True, [f"{folder}/data"]) == f"data in {folder}/data until it stops (keep data: --data ./data)"
    temp_folders.remove(folder)


SHORT = """
import sys
from trioka.cli.node import temp_folders
temp_folders.is_memory_short = lambda: True
from trioka.__main__ import main
sys.exit(main(["dev", "--port", "0", "--http-port", "off"]))
"""


@pytest.mark.skipif(temp_folders.place() != temp_folders.FAST_FOLDER, reason="brokers are not in memory here")
def test_a_broker_in_memory_ends_before_the_machine_has_none_left() -> None:
    ended = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-2:] == [
        "error: this node has ended: less than 128 MB of memory are left",
        "  keep the data on a disk: --data ./data",
    ]


def test_the_printed_command_has_a_path_if_trioka_is_not_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "trioka"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert server._program() == str(own)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert server._program() == "trioka"


def test_run_and_dev_have_the_same_options() -> None:
    assert {"--set", "--host", "--advertise"} <= {option for each in run.params for option in each.opts}
