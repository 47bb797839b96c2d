"""Kafka's command-line tools, run one after the other in one Java machine (programs/Tools.java)."""

import time
from typing import NamedTuple

import toolchains

from .program import Program

# Apache Kafka answers before a change is visible everywhere (patience.py).
PAUSE_SECONDS = 0.1
TOOLS = "org.apache.kafka.tools"
CLASSES = {
    "topics": f"{TOOLS}.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "get-offsets": f"{TOOLS}.GetOffsetShell",
    "delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "log-dirs": f"{TOOLS}.LogDirsCommand",
    "broker-api-versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "metadata-quorum": f"{TOOLS}.MetadataQuorumCommand",
    "features": f"{TOOLS}.FeatureCommand",
    "cluster": f"{TOOLS}.ClusterTool",
    "producer-perf-test": f"{TOOLS}.ProducerPerformance",
    "consumer-perf-test": f"{TOOLS}.ConsumerPerformance",
    "console-producer": f"{TOOLS}.ConsoleProducer",
    "console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "leader-election": f"{TOOLS}.LeaderElectionCommand",
    "reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "transactions": f"{TOOLS}.TransactionsCommand",
    "acls": f"{TOOLS}.AclCommand",
    "dump-log": f"{TOOLS}.DumpLogSegments",
    "storage": "kafka.tools.StorageTool",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "shell-commands": "Shell",  # of this repository, on the classes of the one before (programs/Shell.java)
}
OF_FILES = ("dump-log", "storage", "metadata-shell", "shell-commands")  # these need no broker


class Ended(NamedTuple):
    """The result of a tool: its exit code, standard output and standard error."""

    status: int
    out: str
    err: str


class KafkaTools:
    """`tools("topics", "--list")` is `kafka-topics.sh --bootstrap-server … --list`."""

    def __init__(self, bootstrap: str, *, is_late: bool = False, with_shell: bool = False) -> None:
        self._bootstrap = bootstrap
        self._pause = PAUSE_SECONDS if is_late else 0
        self._program = Program(toolchains.kafka_tools(with_shell=with_shell))

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """What it prints when all is well."""
        ended = self.end_of(tool, *arguments, stdin=stdin)
        assert ended.status == 0, f"kafka-{tool} {' '.join(arguments)} ended with {ended}"
        return ended.out

    def end_of(self, tool: str, *arguments: str, stdin: str = "") -> Ended:
        """How it ends, well or not."""
        is_told = tool in OF_FILES or "--bootstrap-controller" in arguments
        address = () if is_told else ("--bootstrap-server", self._bootstrap)
        # The cluster tool wants its verb first.
        whole = (arguments[0], *address, *arguments[1:]) if tool == "cluster" else (*address, *arguments)
        answer = self._program.ask({"tool": CLASSES[tool], "arguments": whole, "stdin": stdin})
        time.sleep(self._pause)
        return Ended(answer["exit"], answer["out"], answer["err"])

    def close(self) -> None:
        self._program.close()
