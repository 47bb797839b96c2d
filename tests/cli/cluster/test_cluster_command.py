"""`trioka cluster`: three real processes on this machine, broken and mended by the commands that people have for it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from support.command_line import Ended, command

from trioka.cli.cluster.cluster_name import local_folder
from trioka.cli.cluster.health import DEGRADED, DOWN, HEALTHY, Broker, judge
from trioka.cli.cluster.local_cluster import LocalCluster, LocalNode
from trioka.cli.terminal.failure import Exit
from trioka.protocol.messages.metadata import MetadataResponse

PATIENCE = "60s"
Topic = MetadataResponse.Topic


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that run. Each test leaves them so."""
    home = tmp_path_factory.mktemp("home")
    with mock.patch.dict("os.environ", {"XDG_STATE_HOME": str(home), "XDG_CONFIG_HOME": str(home)}):
        os.environ.pop("KAFKA_BOOTSTRAP_SERVERS", None)
        try:
            ended = command("cluster", "up", "--nodes", "3", "--port", "0")
            assert ended.code == Exit.OK, ended
            assert ended.out.startswith("3 nodes ready in ")
            found = LocalCluster.load(local_folder())
            assert found is not None
            yield found
        finally:
            ended = command("cluster", "down", "--delete-data")
    assert ended.code == Exit.OK, ended
    assert list(home.rglob("*")) == [home / "trioka"]


def healthy() -> Ended:
    ended = command("cluster", "status", "--wait-healthy", PATIENCE)
    assert ended.code == Exit.OK, ended
    return ended


def rows(*arguments: str, code: int = Exit.OK) -> Any:
    ended = command("cluster", *arguments, "-o", "json")
    assert ended.code == code, ended
    return ended.rows


def states() -> list[str]:
    return [row["state"] for row in rows("ps")]


def test_a_new_cluster_is_healthy(cluster: LocalCluster) -> None:
    words = healthy().out.split()
    assert words[:2] == [HEALTHY, "cluster"] and words[3:5] == ["3/3", "brokers"] and words[5] == "controller"
    assert states() == ["running"] * 3
    quorum = rows("quorum")
    assert sorted(row["role"] for row in quorum) == ["follower", "follower", "leader"]
    assert [row["state"] for row in rows("brokers")] == ["up"] * 3


def test_a_killed_node_is_missed_until_it_is_started(cluster: LocalCluster) -> None:
    ended = command("topics", "create", "orders", "--partitions", "3", at=servers(cluster))
    assert ended.code == Exit.OK, ended
    (before,) = rows("status")
    assert command("cluster", "kill", "2").out == "node 2 killed\n"
    assert states() == ["running", "stopped", "running"]
    assert command("cluster", "kill", "2").code == Exit.NOT_FOUND
    until(lambda: command("cluster", "status").code == Exit.UNHEALTHY)
    until(lambda: [row["missing"] for row in command("cluster", "under-replicated", "-o", "json").rows] == [[2]] * 3)
    for row in rows("under-replicated", code=Exit.UNHEALTHY):
        assert row["behind"] is None and row["why"] == "broker 2 is down"
        # Only a controller that has heard of it in its own time knows since when it has not.
        assert row["since_ms"] is None or row["since_ms"] >= 0
    (status,) = rows("status", code=Exit.UNHEALTHY)
    if status["epoch"] == before["epoch"]:
        assert all(row["since_ms"] is not None for row in rows("under-replicated", code=Exit.UNHEALTHY))
    assert (status["status"], status["brokers"]) == (DEGRADED, "2/3")
    assert "broker 2 is down" in status["reasons"]
    assert command("cluster", "start", "2").out == "node 2 is ready\n"
    healthy()
    assert rows("under-replicated") == []
    assert command("cluster", "start", "2").code == Exit.EXISTS


def test_a_paused_node_is_missed_until_it_is_resumed(cluster: LocalCluster) -> None:
    assert command("cluster", "pause", "3").code == Exit.OK
    try:
        assert states() == ["running", "running", "paused"]
        until(lambda: command("cluster", "status", "--timeout", "3s", at=servers(cluster, 1, 2)).code == Exit.UNHEALTHY)
    finally:
        resumed = command("cluster", "resume", "3")
    assert resumed.code == Exit.OK
    assert command("cluster", "resume", "3").code == Exit.FAILED
    healthy()


def test_leaders_and_replicas_are_moved_by_a_plan(cluster: LocalCluster, tmp_path: Path) -> None:
    ended = command("topics", "create", "moved", "--partitions", "2", "--replication-factor", "1", at=servers(cluster))
    assert ended.code == Exit.OK, ended
    plan = tmp_path / "plan.json"
    partitions = [{"topic": "moved", "partition": index, "replicas": [1]} for index in (0, 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    shown = command("cluster", "reassign", "--plan", str(plan))
    assert shown.code == Exit.OK
    assert "nothing" in shown.stderr
    assert command("cluster", "reassign", "--plan", str(plan), "--execute").code == Exit.OK
    assert where("moved") == [[1], [1]]
    ended = command("cluster", "drain", "1", "--execute")
    assert ended.code == Exit.OK, ended
    assert all(1 not in replicas for replicas in where("moved"))
    assert command("cluster", "reassign", "--auto", "--execute").code == Exit.OK
    assert command("cluster", "elect-leaders").code == Exit.OK
    healthy()


def test_a_throttled_move_is_slow_until_it_may_be_quick_and_leaves_no_throttle(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    at = servers(cluster)
    plan = tmp_path / "plan.json"
    (tmp_path / "load").write_bytes(b"".join(b"%0500000d\n" % number for number in range(6)))
    assert command("topics", "create", "heavy", "--replication-factor", "1", at=at).code == Exit.OK
    assert command("produce", "heavy", "--file", str(tmp_path / "load"), at=at).code == Exit.OK
    ((first,),) = where("heavy")
    second = first % 3 + 1
    plan.write_text(json.dumps({"partitions": [{"topic": "heavy", "partition": 0, "replicas": [second]}]}))
    ended = command("cluster", "reassign", "--plan", str(plan), "-y", "--wait", "0s", "--throttle", "50KB")
    assert ended.code == Exit.OK and "the throttle stays" in ended.stderr, ended
    assert throttles(at) == {
        "leader.replication.throttled.replicas": f"0:{first}",
        "follower.replication.throttled.replicas": f"0:{second}",
    }
    (row,) = rows("under-replicated", "--sample", "10ms", code=Exit.UNHEALTHY)
    assert (row["missing"], row["leader"]) == ([second], first) and f"broker {second} is up" in row["why"]
    assert 0 < row["behind"] <= 3_100_000 and row["since_ms"] == row["behind_ms"] >= 0
    assert command("cluster", "reassign", "--throttle", "off").code == Exit.FAILED  # it still moves
    for node in (first, second):
        for key in ("leader", "follower"):
            rate = f"{key}.replication.throttled.rate=1000000000"
            assert command("config", "set", rate, "--broker", str(node), at=at).code == Exit.OK
    until(lambda: where("heavy") == [[second]])
    assert command("cluster", "reassign", "--throttle", "off").out == "nothing is throttled\n"
    assert throttles(at) == {}
    plan.write_text(json.dumps({"partitions": [{"topic": "heavy", "partition": 0, "replicas": [first]}]}))
    assert command("cluster", "reassign", "--plan", str(plan), "-y", "--throttle", "1GB").code == Exit.OK
    assert (where("heavy"), throttles(at)) == ([[first]], {})
    shown = command("config", "show", "--broker", str(first), "-o", "name", at=at)
    assert "throttled" not in shown.out


def throttles(at: str) -> dict[str, str]:
    (described,) = command("topics", "describe", "heavy", "-o", "json", at=at).rows
    return {key: value for key, value in described["configs"].items() if "throttled" in key}


def test_what_cannot_be_is_one_sentence(cluster: LocalCluster, tmp_path: Path) -> None:
    assert command("cluster", "kill", "9").code == Exit.NOT_FOUND
    assert command("cluster", "logs", "9").code == Exit.NOT_FOUND
    assert command("cluster", "drain", "9").code == Exit.NOT_FOUND
    assert command("cluster", "reassign").code == Exit.USAGE
    assert command("cluster", "reassign", "--auto", "--throttle", "fast").code == Exit.USAGE
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[]")
    ended = command("cluster", "reassign", "--plan", str(wrong))
    assert ended.code == Exit.USAGE and "is no plan" in ended.stderr and "Traceback" not in ended.stderr
    assert command("cluster", "logs", "1").code == Exit.OK


def test_without_a_cluster_there_is_nothing_to_stop(tmp_path: Path) -> None:
    for words in (["down"], ["ps"], ["kill", "1"]):
        ended = command("cluster", *words, environment={"XDG_STATE_HOME": str(tmp_path)})
        assert ended.code == Exit.NOT_FOUND and "trioka cluster up" in ended.stderr


def test_a_process_that_has_a_nodes_number_by_chance_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stranger:
        found = LocalCluster(tmp_path, [LocalNode(1, 9092, None)], {1: stranger.pid})
        assert found.state(1) == "stopped"
        found.send(1, signal.SIGKILL)
        assert found.stop([1]) == []
        assert stranger.poll() is None
        stranger.kill()


def test_dev_with_several_nodes_ends_with_all_of_them(tmp_path: Path) -> None:
    arguments = ["dev", "--nodes", "2", "--port", "0", "--data", str(tmp_path), "--topic", "orders:2"]
    process = subprocess.Popen([sys.executable, "-m", "trioka", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "ready in" in process.stdout.readline()
        assert [process.stdout.readline().split()[:2] for _ in range(2)] == [["Node", "1"], ["Node", "2"]]
        (where,) = re.findall(r"http://localhost:\d+", process.stdout.readline())
        with urllib.request.urlopen(f"{where}/readyz", timeout=60) as answer:
            assert answer.read() == b"ok\n"
        assert process.stdout.readline().startswith("  Try ")
        found = LocalCluster.load(tmp_path)
        assert found is not None and [found.state(node) for node in (1, 2)] == ["running"] * 2
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert [found.state(node) for node in (1, 2)] == ["stopped"] * 2
        assert (tmp_path / "node-2" / "data" / ".kafka_cleanshutdown").exists()
    finally:
        process.kill()


# -- the verdict -------------------------------------------------------------------------------------------------------


def result(*partitions: tuple[int, list[int], list[int]]) -> MetadataResponse:
    """Leader, replicas, in sync."""
    return MetadataResponse(
        brokers=[],
        topics=[
            Topic(
                error_code=0,
                name="orders",
                partitions=[
                    Topic.Partition(
                        error_code=0, partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr
                    )
                    for index, (leader, replicas, isr) in enumerate(partitions)
                ],
            )
        ],
    )


def known(*fenced: int) -> list[Broker]:
    return [Broker(node, "localhost", 9090 + node, None, node in fenced) for node in (1, 2)]


def test_a_taken_port_is_named_with_its_node_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = command("cluster", "up", "--nodes", "1", "--port", str(port))
    assert ended.code != Exit.OK
    assert f"node 1 cannot start: port {port} is taken by process {os.getpid()}" in ended.stderr
    assert LocalCluster.load(local_folder()) is None
    assert list(tmp_path.rglob("*")) == [tmp_path / "trioka"]


def test_a_node_that_does_not_start_stops_the_others_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ended = command("cluster", "up", "--nodes", "2", "--port", "0", "--override", "num.partitions=no")
    assert ended.code != Exit.OK
    assert "num.partitions" in ended.stderr and not local_folder().exists()
    assert LocalCluster.load(local_folder()) is None
    assert not [each for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(each.info["cmdline"])]
    assert command("cluster", "up", "--override", "x").code == Exit.USAGE


def test_two_clusters_of_one_user_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    names = ("blue", "green")
    try:
        for name in names:
            ended = command("cluster", "up", "--nodes", "1", "--port", "0", "--name", name)
            assert ended.code == Exit.OK and f"trioka cluster status --name {name}" in ended.stderr, ended
        ports = [rows("ps", "--name", name)[0]["address"] for name in names]
        assert len(set(ports)) == 2
        assert command("cluster", "kill", "1", "--name", "blue").code == Exit.OK
        ended = command("cluster", "status", "--name", "green", "--wait-healthy", PATIENCE)
        assert ended.code == Exit.OK, ended
        assert command("cluster", "status", "--name", "blue", "--timeout", "1s").code != Exit.OK
        assert rows("ps", "--name", "blue")[0]["state"] == "stopped"
        assert "no cluster 'red'" in command("cluster", "ps", "--name", "red").stderr
        assert "no cluster on this machine" in command("cluster", "ps").stderr
        for wrong in ("../x", "-x", "", "a/b"):
            assert command("cluster", "up", f"--name={wrong}").code == Exit.USAGE
        assert command("cluster", "status", "--name", "green", "-b", "localhost:1").code == Exit.USAGE
    finally:
        for name in names:
            assert command("cluster", "down", "--delete-data", "--name", name).code == Exit.OK
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_a_cluster_has_overrides_and_offers_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ended = command("cluster", "up", "--nodes", "1", "--port", "0", "--override", "num.partitions=4", "--metrics")
    try:
        assert ended.code == Exit.OK, ended
        found = re.search(r"metrics of node 1: (http://\S+)", ended.stderr)
        assert found is not None
        with urllib.request.urlopen(found[1]) as page:
            assert b"kafka_server_" in page.read()
        local = LocalCluster.load(local_folder())
        assert local is not None
        config = command("config", "get", "num.partitions", "--broker", "1", at=servers(local))
        assert config.out == "4\n"
        again = command("cluster", "up", "--nodes", "1", "--metrics")
        assert again.code == Exit.OK
        assert "the cluster exists" in again.stderr
    finally:
        assert command("cluster", "down", "--delete-data").code == Exit.OK


def test_a_lost_quorum_is_named_and_silent_brokers_show_at_once(cluster: LocalCluster) -> None:
    healthy()
    try:
        for node in ("2", "3"):
            assert command("cluster", "kill", node).code == Exit.OK
        ended = command("cluster", "status", "--timeout", "5s", "-o", "json")
        assert ended.code == Exit.UNHEALTHY
        (row,) = ended.rows
        assert row["status"] == DOWN
        assert any(each.startswith("the quorum is lost: 1 of 3 controllers answers;") for each in row["reasons"]), row
    finally:
        for node in ("2", "3"):
            command("cluster", "start", node)
    healthy()
    assert command("cluster", "kill", "2").code == Exit.OK
    ended = command("cluster", "status", "-o", "json")  # the session of the broker has not ended yet
    assert (ended.code, ended.rows[0]["brokers"]) == (Exit.UNHEALTHY, "2/3")
    assert command("cluster", "start", "2").code == Exit.OK
    healthy()


def test_the_worst_decides() -> None:
    whole, behind, without = (1, [1, 2], [1, 2]), (1, [1, 2], [1]), (-1, [1, 2], [2])
    assert judge(result(whole), known(), has_controller=True) == (HEALTHY, [])
    assert judge(result(whole, behind), known(), has_controller=True)[0] == DEGRADED
    assert judge(result(whole), known(2), has_controller=True) == (DEGRADED, ["broker 2 is down"])
    assert judge(result(whole), known(), [2], has_controller=True) == (DEGRADED, ["broker 2 does not answer"])
    assert judge(result(whole), known(), [2, 3], has_controller=True)[1] == ["brokers 2, 3 do not answer"]
    verdict, reasons = judge(result(behind, without), known(2), has_controller=True)
    assert verdict == DOWN and len(reasons) == 3
    assert judge(result(whole), known(), has_controller=False)[0] == DOWN


# -- small things ------------------------------------------------------------------------------------------------------


def servers(cluster: LocalCluster, *nodes: int) -> str:
    return ",".join(f"localhost:{cluster.nodes[node].port}" for node in nodes or cluster.nodes)


def where(topic: str) -> list[list[int]]:
    found = LocalCluster.load(local_folder())
    assert found is not None
    (described,) = command("topics", "describe", topic, "-o", "json", at=servers(found)).rows
    return [partition["replicas"] for partition in described["partitions"]]


def until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.1)
