"""Kafka's own tools for clusters, against three nodes of trioka: the quorum, moves of partitions, elections, who is
there and who is gone; and its readers of files, on what the nodes have written.

The tools run in one Java machine, but for one that does not end by itself. The tests share the nodes, and each leaves
all three running; those at the end of the file look at what has been written when they have stopped.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jars
import pytest
from clients.kafka_tools import KafkaTools
from dump import complaints, parse_dump
from java_program import JavaProgram
from support.command_line import command
from three_nodes import CLUSTER_ID, IDS, METADATA, SNAPSHOT_BYTES, ThreeNodes
from toolchains import unavailable

from trioka.cli.terminal.failure import Exit
from trioka.cluster.quorum.snapshot import parse_snapshot_name
from trioka.pipeline.installation.cache import Unavailable

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LED, FOLLOWED = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"
FULL_SPEED = 1 << 30


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, apache_kafka: None) -> Iterator[ThreeNodes]:
    with ThreeNodes.running(tmp_path_factory.mktemp("nodes")) as running:
        yield running


@pytest.fixture(scope="module")
def tools(nodes: ThreeNodes) -> Iterator[KafkaTools]:
    try:
        tools = KafkaTools(nodes.bootstrap, with_shell=True)
    except Unavailable as missing:
        unavailable(missing)
    yield tools
    tools.close()


@pytest.fixture(scope="module")
def kept(nodes: ThreeNodes, tools: KafkaTools) -> str:
    """A topic whose two partitions all three nodes have, whole."""
    create(tools, "kept", "1:2:3,2:3:1")
    fill(tools, "kept")

    def have_all() -> bool:
        result = json.loads(tools("log-dirs", "--describe", "--topic-list", "kept").splitlines()[-1])
        held = [part for broker in result["brokers"] for place in broker["logDirs"] for part in place["partitions"]]
        return len(held) == 6 and len({(part["partition"], part["size"]) for part in held}) == 2

    nodes.until(have_all, "all have all of it")
    return "kept"


def create(tools: KafkaTools, topic: str, replicas: str, *options: str) -> None:
    made = tools("topics", "--create", "--topic", topic, "--replica-assignment", replicas, *options)
    assert made == f"Created topic {topic}.\n"


def fill(tools: KafkaTools, topic: str) -> None:
    """A hundred batches."""
    load = ("--num-records", "200", "--record-size", "8000", "--throughput", "-1")
    assert "200 records sent" in tools("producer-perf-test", "--topic", topic, *load)


class Partition(NamedTuple):
    leader: str
    replicas: list[int]
    isr: set[int]


def partition(tools: KafkaTools, topic: str) -> Partition:
    """Its first, as the tool for topics tells of it."""
    _, row = tools("topics", "--describe", "--topic", topic).splitlines()[:2]
    result = dict(cell.split(": ", 1) for cell in row.strip().split("\t") if ": " in cell)
    return Partition(result["Leader"], numbers(result["Replicas"]), set(numbers(result["Isr"])))


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


# --- transactions


def test_a_producer_of_short_transactions_writes_to_all_nodes_without_waiting(tools: KafkaTools) -> None:
    """It sends several batches at a time, also right after the end of a transaction, when the leaders of partitions
    have to ask its coordinator, mostly on another node, before they write the first."""
    create(tools, "short", "1:2:3,2:3:1,3:1:2")
    load = ("--num-records", "20000", "--record-size", "1000", "--throughput", "-1")
    ended = tools.end_of("producer-perf-test", "--topic", "short", *load, "--transaction-duration-ms", "60")
    assert (ended.status, ended.err) == (0, ""), ended
    assert "20000 records sent" in ended.out


# --- the quorum


class Voters(NamedTuple):
    leader: int
    ids: list[int]
    observers: list[int]


def quorum(tools: KafkaTools, *where: str) -> dict[str, str]:
    result = tools("metadata-quorum", *where, "describe", "--status")
    return dict(re.findall(r"^(\w+): +(.*)$", result, re.MULTILINE))


def voters(tools: KafkaTools) -> Voters:
    result = quorum(tools)
    ids, observers = ([each["id"] for each in json.loads(result[f"Current{kind}"])] for kind in ("Voters", "Observers"))
    return Voters(int(result["LeaderId"]), ids, observers)


def test_the_quorum_is_described_by_brokers_and_by_controllers(nodes: ThreeNodes, tools: KafkaTools) -> None:
    for where in ((), ("--bootstrap-controller", nodes.controllers)):
        result = quorum(tools, *where)
        assert result["ClusterId"] == CLUSTER_ID
        assert int(result["LeaderId"]) in IDS and int(result["LeaderEpoch"]) >= 1 and int(result["HighWatermark"]) > 0
        assert json.loads(result["CurrentVoters"]) == [
            {
                "id": node.id,
                "directoryId": nodes.directory_id(node.id),
                "endpoints": [f"CONTROLLER://127.0.0.1:{node.controller_port}"],
            }
            for node in nodes.nodes.values()
        ]
        assert json.loads(result["CurrentObservers"]) == []


def test_the_quorums_replication_is_told_with_times_that_have_been(nodes: ThreeNodes, tools: KafkaTools) -> None:
    _, *rows = (line.split() for line in tools("metadata-quorum", "describe", "--replication").splitlines())
    assert [row[-1] for row in rows] == ["Leader", "Follower", "Follower"]
    assert {(int(row[0]), row[1]) for row in rows} == {(node, nodes.directory_id(node)) for node in IDS}
    # The tool fails if it is to say how long ago it was that something will be. Of two it may have to be heard first.
    ago = ("metadata-quorum", "describe", "--replication", "--human-readable")
    nodes.until(lambda: len(re.findall(r"\d+ ms ago", tools.end_of(*ago).out)) == 6, "all have been heard of")


def test_a_controller_is_voted_out_and_in_again(nodes: ThreeNodes, tools: KafkaTools) -> None:
    before = voters(tools)
    chosen = next(node for node in IDS if node != before.leader)
    named = ("--controller-id", str(chosen), "--controller-directory-id", nodes.directory_id(chosen))
    out = ("metadata-quorum", "remove-controller", *named)
    back = ("metadata-quorum", "--command-config", str(nodes.properties_of(chosen)), "add-controller")

    assert tools(*out, "--dry-run").startswith("DRY RUN of removing")
    assert tools(*out).split() == ["Removed", *f"KRaft controller {chosen} with directory id {named[-1]}".split()]
    left = [node for node in IDS if node != chosen]
    nodes.until(lambda: voters(tools)[1:] == (left, [chosen]), "it follows without a vote")
    ended = tools.end_of(*out)
    assert ended.status == 1 and "VoterNotFoundException" in ended.err

    assert tools(*back, "--dry-run").startswith(f"DRY RUN of adding controller {chosen} with directory id ")
    # Until it has caught up the leader does not take it, here and in Kafka.
    nodes.until(lambda: tools.end_of(*back).status == 0 or voters(tools).ids == list(IDS), "it votes again")
    assert voters(tools)[1:] == (list(IDS), [])
    ended = tools.end_of(*back)
    assert ended.status == 1 and "DuplicateVoterException" in ended.err


# --- who is there


def endpoints(tools: KafkaTools, *options: str) -> list[list[str]]:
    return [line.split() for line in tools("cluster", "list-endpoints", *options).splitlines()[1:]]


def test_the_cluster_and_its_nodes_have_names(nodes: ThreeNodes, tools: KafkaTools) -> None:
    where = ("--bootstrap-controller", nodes.controllers)
    for options in ((), where):
        assert tools("cluster", "cluster-id", *options) == f"Cluster ID: {CLUSTER_ID}\n"
    assert endpoints(tools) == [
        [str(node.id), "localhost", str(node.port), "null", "unfenced", "broker"] for node in nodes.nodes.values()
    ]
    assert endpoints(tools, *where) == [
        [str(node.id), "127.0.0.1", str(node.controller_port), "null", "controller"] for node in nodes.nodes.values()
    ]


# --- partitions move


class Plan:
    """What the tool for moves reads, and what it does with it."""

    def __init__(self, tools: KafkaTools, file: Path, replicas: dict[str, list[int]]) -> None:
        rows = [{"topic": topic, "partition": 0, "replicas": ids} for topic, ids in replicas.items()]
        file.write_text(json.dumps({"version": 1, "partitions": rows}))
        self.file = ("--reassignment-json-file", str(file))
        self._tools = tools

    def __call__(self, *words: str) -> str:
        return self._tools("reassign-partitions", *words, *self.file)


def configured(tools: KafkaTools, kind: str, name: object) -> dict[str, str]:
    result = tools("configs", "--entity-type", kind, "--entity-name", str(name), "--describe")
    return dict(re.findall(r"^  (\S+?)=(\S+) sensitive=", result, re.MULTILINE))


def rates(tools: KafkaTools) -> list[dict[str, str]]:
    return [configured(tools, "brokers", node) for node in IDS]


def test_a_throttled_move_crawls_until_it_is_called_off(tools: KafkaTools, nodes: ThreeNodes, tmp_path: Path) -> None:
    create(tools, "slow", "1:2")
    fill(tools, "slow")
    plan = Plan(tools, tmp_path / "plan.json", {"slow": [3, 1]})
    message = plan("--execute", "--throttle", "1")
    assert "The inter-broker throttle limit was set to 1 B/s\n" in message
    assert "Successfully started partition reassignment for slow-0\n" in message
    assert rates(tools) == [{LEADER_RATE: "1", FOLLOWER_RATE: "1"}] * 3
    assert configured(tools, "topics", "slow") == {LED: "0:1,0:2", FOLLOWED: "0:3"}

    moving = "Current partition reassignments:\nslow-0: replicas: 3,1,2. adding: 3. removing: 2.\n"
    for where in ((), ("--bootstrap-controller", nodes.controllers)):
        assert tools("reassign-partitions", "--list", *where) == moving
    assert "Reassignment of partition slow-0 is still in progress.\n" in plan("--verify")
    assert partition(tools, "slow") == Partition("1", [3, 1, 2], {1, 2})
    ended = tools.end_of("reassign-partitions", "--execute", *plan.file)
    assert ended.status == 1 and "there is an existing partition assignment" in ended.out
    assert "throttle limit was set to 2 B/s" in plan("--execute", "--additional", "--throttle", "2")
    assert rates(tools) == [{LEADER_RATE: "2", FOLLOWER_RATE: "2"}] * 3

    message = plan("--cancel")
    assert "Successfully cancelled partition reassignment for: slow-0\n" in message
    assert "Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic slow" in message
    assert partition(tools, "slow") == Partition("1", [1, 2], {1, 2})
    assert rates(tools) == [{}] * 3 and configured(tools, "topics", "slow") == {}
    assert "None of the specified partition reassignments are active.\n" in plan("--cancel")
    assert "but replica set is 1,2 rather than 3,1." in plan("--verify")


def test_a_move_is_planned_carried_out_and_rid_of_its_throttle(
    tools: KafkaTools, nodes: ThreeNodes, tmp_path: Path
) -> None:
    create(tools, "quick", "1:2")
    fill(tools, "quick")
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": "quick"}]}))
    generate = ("--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3")
    _, now, _, _, proposed = tools("reassign-partitions", *generate).splitlines()
    (row,) = json.loads(now)["partitions"]
    assert row["replicas"] == [1, 2] and row["log_dirs"] == [str(nodes.data_of(node)) for node in (1, 2)]
    (row,) = json.loads(proposed)["partitions"]
    assert sorted(row["replicas"]) == [2, 3]

    plan = Plan(tools, tmp_path / "plan.json", {"quick": [3, 2]})
    plan("--execute", "--throttle", str(FULL_SPEED))
    nodes.until(lambda: "Reassignment of partition quick-0 is completed.\n" in plan("--verify"), "it has moved")
    assert partition(tools, "quick") == Partition(partition(tools, "quick").leader, [3, 2], {2, 3})
    assert rates(tools) == [{}] * 3 and configured(tools, "topics", "quick") == {}
    assert tools("reassign-partitions", "--list") == "No partition reassignments found.\n"
    nodes.until(lambda: not (nodes.data_of(1) / "quick-0").exists(), "what was left behind is gone")

    plan = Plan(tools, tmp_path / "plan.json", {"quick": [3, 2, 1]})
    ended = tools.end_of("reassign-partitions", "--execute", "--disallow-replication-factor-change", *plan.file)
    assert ended.status == 1 and "Error reassigning partition(s):\nquick-0: " in ended.out


# --- elections


def elected(tools: KafkaTools, *words: str) -> set[str]:
    """Those that have another leader now, of those that were meant."""
    result = tools("leader-election", "--election-type", *words)
    found = re.search(r"^Successfully completed leader election \(\w+\) for partitions (.*)$", result, re.MULTILINE)
    return set() if found is None else set(found[1].split(", "))


def test_the_first_replica_leads_again(tools: KafkaTools, tmp_path: Path) -> None:
    topics = ("led-a", "led-b", "led-c")
    for topic in topics:
        create(tools, topic, "1:2:3")
    Plan(tools, tmp_path / "plan.json", {topic: [2, 1, 3] for topic in topics})("--execute")
    assert {partition(tools, topic).leader for topic in topics} == {"1"}

    assert elected(tools, "preferred", "--topic", "led-a", "--partition", "0") == {"led-a-0"}
    listed = tmp_path / "elections.json"
    listed.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0} for topic in topics[:2]]}))
    assert elected(tools, "preferred", "--path-to-json-file", str(listed)) == {"led-b-0"}
    assert "led-c-0" in elected(tools, "preferred", "--all-topic-partitions")
    assert {partition(tools, topic).leader for topic in topics} == {"2"}
    again = tools("leader-election", "--election-type", "preferred", "--topic", "led-a", "--partition", "0")
    assert again == "Valid replica already elected for partitions led-a-0\n"
    again = tools("leader-election", "--election-type", "unclean", "--topic", "led-a", "--partition", "0")
    assert again == "Valid replica already elected for partitions led-a-0\n"
    assert tools("leader-election", "--election-type", "unclean", "--all-topic-partitions") == ""


def test_replicas_hold_the_same_records(kept: str, nodes: ThreeNodes, tmp_path: Path) -> None:
    """The tool reads each partition from every replica, followers too, and compares; it goes on until it is ended."""
    options = ("--broker-list", nodes.bootstrap, "--topics-include", kept, "--time", "-2", "--report-interval-ms", "1")
    with JavaProgram(tmp_path, jars.class_path(), VERIFICATION, *options) as tool:
        # The first line may come before anything was compared.
        tool.wait_until(lambda: len(re.findall(r"max lag is 0 for partition kept-", tool.log.read_text())) > 1)
    assert "match" not in tool.log.read_text()


def test_a_node_that_is_away_is_done_without_and_comes_back(
    kept: str, nodes: ThreeNodes, tools: KafkaTools, tmp_path: Path
) -> None:
    create(tools, "lost", "3", "--config", "min.insync.replicas=1")
    fill(tools, "lost")
    plan = Plan(tools, tmp_path / "plan.json", {"lost": [3, 2]})
    plan("--execute", "--throttle", "1")
    nodes.stop([3])
    try:
        nodes.until(lambda: partition(tools, "lost").leader == "none", "nobody leads it")
        assert [row[4] for row in endpoints(tools, "--include-fenced-brokers")] == ["unfenced", "unfenced", "fenced"]
        assert [row[0] for row in endpoints(tools)] == ["1", "2"]
        elect = ("leader-election", "--topic", "lost", "--partition", "0", "--election-type")
        ended = tools.end_of(*elect, "preferred")
        assert ended.status == 1 and "PreferredLeaderNotAvailableException" in ended.out
        # The second has a batch or so, and does what it can.
        assert tools(*elect, "unclean") == "Successfully completed leader election (UNCLEAN) for partitions lost-0\n"
        assert partition(tools, "lost") == Partition("2", [3, 2], {2})

        assert tools("cluster", "unregister", "--id", "3") == "Broker 3 is no longer registered.\n"
        assert [row[0] for row in endpoints(tools, "--include-fenced-brokers")] == ["1", "2"]
        ended = tools.end_of("cluster", "unregister", "--id", "3")
        assert ended.status == 1 and "BrokerIdNotRegisteredException" in ended.err
    finally:
        nodes.start(3)
    nodes.until(lambda: "Reassignment of partition lost-0 is completed.\n" in plan("--verify"), "it has moved")
    assert rates(tools) == [{}] * 3
    nodes.until(lambda: partition(tools, kept).isr == set(IDS), "all are in sync")
    assert [row[0] for row in endpoints(tools)] == ["1", "2", "3"]


# --- files


def test_a_directory_in_use_is_in_use_for_kafkas_shell_too(nodes: ThreeNodes, tools: KafkaTools) -> None:
    anything = nodes.data_of(1) / METADATA / f"{0:020d}.log"
    ended = tools.end_of("metadata-shell", "--snapshot", str(anything), "ls", "/")
    assert ended.status == 1 and f"Unable to lock {nodes.data_of(1)}." in ended.err


@pytest.fixture(scope="module")
def stopped(kept: str, nodes: ThreeNodes, tools: KafkaTools) -> ThreeNodes:
    """Each with a snapshot that knows of the topic: so many partitions make one due."""
    before = {node: newest_snapshot(nodes, node) for node in IDS}
    tools("topics", "--create", "--topic", "many", "--partitions", str(SNAPSHOT_BYTES // 100))
    nodes.until(lambda: all(newest_snapshot(nodes, node) > before[node] for node in IDS), "all have a new snapshot")
    nodes.stop(IDS)
    return nodes


def newest_snapshot(nodes: ThreeNodes, node: int) -> Path:
    return max((nodes.data_of(node) / METADATA).glob("*.checkpoint"))


class Dumped(NamedTuple):
    """A record of the metadata: when it was written, and what the reader prints of it."""

    written_ms: int
    text: str


RECORD = re.compile(
    r"\| offset: (\d+) CreateTime: (\d+) keySize: -?\d+ valueSize: \d+ sequence: -1 headerKeys: \[\] (.*)"
)
HARMLESS = re.compile(r"Dumping .*|(Log starting|Snapshot end) offset: .*|baseOffset: .* isvalid: true|")


def dumped(tools: KafkaTools, file: Path) -> dict[int, Dumped]:
    """The metadata's records in a file, by offset. Kafka's reader must have nothing to say but that."""
    ended = tools.end_of("dump-log", "--cluster-metadata-decoder", "--files", str(file))
    assert ended.status == 0, ended
    found = {}
    for line in ended.out.splitlines():
        if record := RECORD.fullmatch(line):
            found[int(record[1])] = Dumped(int(record[2]), record[3])
        else:
            assert HARMLESS.fullmatch(line), line
    # A file that does not begin with the first offset has a gap before it, says the reader.
    gap = rf"(Non-consecutive offsets in .*\n  -1 is followed by {min(found, default=0)}\n)?"
    assert re.fullmatch(gap, ended.err), ended.err
    return found


def test_kafkas_reader_finds_the_same_metadata_on_all_nodes(stopped: ThreeNodes, tools: KafkaTools) -> None:
    logs: dict[int, dict[int, Dumped]] = {}
    snapshots: dict[str, list[str]] = {}
    for node in IDS:
        folder = stopped.data_of(node) / METADATA
        logs[node] = {}
        for file in sorted(folder.glob("*.log")):
            logs[node] |= dumped(tools, file)
        assert list(logs[node]) == list(range(min(logs[node]), max(logs[node]) + 1))
        both = logs[1].keys() & logs[node].keys()
        assert both and [logs[1][offset] for offset in both] == [logs[node][offset] for offset in both]
        for file in folder.glob("*.checkpoint"):
            header, *records, footer = (record.text for record in dumped(tools, file).values())
            assert snapshots.setdefault(file.name, records) == records  # the same on every node that has it
            assert footer == 'SnapshotFooter {"version":0}'
            snapshot = parse_snapshot_name(file.name)
            assert snapshot is not None
            if snapshot.offset - 1 in logs[node]:
                last_ms = logs[node][snapshot.offset - 1].written_ms
                assert header == f'SnapshotHeader {{"version":0,"lastContainedLogTimestamp":{last_ms}}}'


def test_kafkas_shell_walks_through_our_snapshots(stopped: ThreeNodes, tools: KafkaTools) -> None:
    commands = ("ls /image/cluster/brokers", "ls /image/cluster/controllers", "cat /image/topics/byName/kept/0")
    for node in IDS:
        result = tools("shell-commands", str(newest_snapshot(stopped, node)), *commands)
        _, brokers, controllers, kept = re.split(r"(?m)^\$ .*\n", result)
        assert brokers.split() == controllers.split() == ["1", "2", "3"]
        directories = ", ".join(stopped.directory_id(each) for each in IDS)
        assert kept.startswith(f"PartitionRegistration(replicas=[1, 2, 3], directories=[{directories}], isr=[")


def test_kafkas_reader_finds_the_same_records_on_all_nodes(kept: str, stopped: ThreeNodes, tools: KafkaTools) -> None:
    for index in (0, 1):
        logs = [sorted((stopped.data_of(node) / f"{kept}-{index}").glob("*.log")) for node in IDS]
        files = [parse_dump(tools("dump-log", "--deep-iteration", "--files", ",".join(map(str, log)))) for log in logs]
        assert all(complaints(of_node) == [] for of_node in files)
        batches = [[batch for file in of_node for batch in file.batches] for of_node in files]
        assert batches[0] and batches[0] == batches[1] == batches[2]


def test_what_one_storage_tool_formats_the_other_knows(tools: KafkaTools, tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        data, config = tmp_path / name, tmp_path / f"{name}.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 7,
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": f"{data}/a,{data}/b",
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        words = ("format", "-t", CLUSTER_ID, "-c", str(config), "--standalone")
        if name == "ours":
            assert command("storage", *words).code == Exit.OK
        else:
            tools("storage", *words)
        result = tools("storage", "info", "-c", str(config))
        assert f"Found log directories:\n  {data}/a\n  {data}/b\n" in result
        known_to_both = rf"Found metadata: {{cluster.id={CLUSTER_ID}, directory.id=\S+, node.id=7, version=1}}"
        assert re.search(known_to_both, result), result
        assert "problem" not in result
        rows = command("storage", "info", "-c", str(config), "-o", "json").rows
        known = [(row["directory"], row["cluster_id"], row["node_id"], row["status"]) for row in rows]
        assert known == [(f"{data}/{part}", CLUSTER_ID, 7, "formatted") for part in "ab"]
