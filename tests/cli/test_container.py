"""What the image and compose.yaml in packaging/ start: the entry point is run here, without a container."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SETTING = re.compile(r"^ +(CLUSTER_ID|KAFKA_\w+): (.+)$", re.M)
PATIENCE_S = 60


def environment(tmp_path: Path, **settings: str) -> dict[str, str]:
    """Without the KAFKA_ variables of this process, and with a `trioka` on the PATH."""
    command = tmp_path / "bin" / "trioka"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m trioka "$@"\n')
    command.chmod(0o755)
    own = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    paths = {"PATH": f"{command.parent}:{os.environ['PATH']}", "KAFKA_LOG_DIRS": str(tmp_path / "data")}
    return {**own, **paths, "KAFKA_TRIOKA_HTTP_LISTENERS": "127.0.0.1:0", **settings}


def entry_point(settings: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(PACKAGING / "entrypoint.sh"), *arguments]
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=PATIENCE_S)


def health(listeners: str) -> tuple[int, str]:
    """The exit code of the image's health check, and what it prints."""
    command = [sys.executable, str(PACKAGING / "health.py")]
    settings = {**os.environ, "KAFKA_TRIOKA_HTTP_LISTENERS": listeners}
    checked = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=PATIENCE_S)
    return checked.returncode, checked.stderr


@pytest.mark.parametrize(("listeners", "reason"), [("", "names no listener"), ("127.0.0.1:1", "not ready: ")])
def test_a_node_without_an_answer_is_not_healthy(listeners: str, reason: str) -> None:
    code, text = health(listeners)
    assert code == 1 and reason in text and len(text.splitlines()) == 1


def test_the_image_has_the_libraries_that_the_tests_have() -> None:
    def pins(name: str) -> dict[str, str]:
        return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", (ROOT / "requirements" / name).read_text()))

    tested = pins("dev.txt") | pins("run.txt")
    assert pins("image.txt").items() <= tested.items()


def test_the_entry_point_formats_with_the_cluster_id_and_becomes_the_node(tmp_path: Path) -> None:
    settings = environment(
        tmp_path,
        CLUSTER_ID=CLUSTER_ID,
        TRIOKA_CONFIG=str(PACKAGING / "single-node.properties"),
        KAFKA_LISTENERS="PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    )
    for _ in range(2):  # what is formatted is left alone
        command = ["sh", str(PACKAGING / "entrypoint.sh")]
        with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
            assert node.stdout is not None and node.stderr is not None
            ready = next(each for each in map(json.loads, node.stderr) if each["event"] == "node.ready")
            assert health(ready["metrics"].removeprefix("http://").removesuffix("/metrics")) == (0, "")
            node.send_signal(signal.SIGTERM)  # reaches the node, since the shell has become it
            assert all(json.loads(line)["level"] == "info" for line in node.stderr)
            assert node.stdout.read() == ""
        assert node.returncode == 0
        assert f"cluster.id={CLUSTER_ID}\n" in (tmp_path / "data" / "meta.properties").read_text()


def settings_of_compose() -> dict[str, dict[str, str]]:
    """The variables of each service, those of all services included."""
    shared, *services = re.split(r"^  (?=kafka-\d:\n    <<)", (PACKAGING / "compose.yaml").read_text(), flags=re.M)
    common = dict(SETTING.findall(shared))
    found = {text.split(":")[0]: {**common, **dict(SETTING.findall(text))} for text in services}
    return {name: {key: value.strip('"') for key, value in each.items()} for name, each in found.items()}


def copied() -> list[str]:
    """What the Containerfile copies from the repository."""
    lines = (PACKAGING / "Containerfile").read_text().splitlines()
    return [
        word for line in lines if re.match(r"COPY (?!--from)", line) for word in line.split()[1:-1] if word[0] != "-"
    ]


def test_the_image_has_every_package() -> None:
    packages = {each.name for each in (ROOT / "trioka").iterdir() if each.is_symlink()}
    assert packages <= set(copied())


def test_everything_that_the_image_copies_is_sent_to_its_build() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied()) == sent
    assert all((ROOT / each).exists() for each in sent)


def test_compose_describes_three_nodes_of_one_cluster() -> None:
    found = settings_of_compose()
    assert [each["KAFKA_NODE_ID"] for each in found.values()] == ["1", "2", "3"]
    for name, each in found.items():
        assert f"{each['KAFKA_NODE_ID']}@{name}:9093" in each["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
        assert f"PLAINTEXT://{name}:9092," in each["KAFKA_ADVERTISED_LISTENERS"]


@pytest.mark.parametrize("name", ["kafka-1", "kafka-2", "kafka-3"])
def test_the_variables_of_compose_are_a_valid_node(tmp_path: Path, name: str) -> None:
    checked = entry_point(environment(tmp_path, **settings_of_compose()[name]), "--check")
    assert checked.returncode == 0, checked.stderr
    assert "unknown" not in checked.stdout + checked.stderr
    assert "did you mean" not in checked.stdout + checked.stderr
    assert (tmp_path / "data" / "meta.properties").exists()


def test_a_variable_of_compose_that_is_wrong_stops_the_start(tmp_path: Path) -> None:
    wrong = {**settings_of_compose()["kafka-1"], "KAFKA_LISTENERS": "nonsense"}
    checked = entry_point(environment(tmp_path, **wrong), "--check")
    assert checked.returncode != 0
    assert "Traceback" not in checked.stderr
