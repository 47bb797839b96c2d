"""Kafka's TransactionsCommand (kafka-transactions.sh) says of our transactions what it says of Apache Kafka's.

The same steps are gone with both brokers, with the same producers; then the two transcripts are compared, step by step.
What differs from run to run is blotted out: times. Tables have no order. Of a partition or a broker that is not there
the tool asks again and again for a minute, and so nothing is asked.

A transaction hangs when its coordinator does not know of it. A broker of today does not let that happen, unless it is
told not to look; then a producer of the older generation need only write without having said where it will.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from clients.client import Record
from clients.confluent import Confluent
from clients.kafka_tools import Ended, KafkaTools
from clients.patience import patient
from confluent_kafka import Producer
from oracle import ApacheKafka
from support.serving import Client
from support.transaction_requests import NOW_MS, init, produce
from trioka_process import TriokaProcess

from trioka.protocol.messages.describe_transactions import DescribeTransactionsRequest

pytestmark = pytest.mark.usefixtures("apache_kafka")

SETTINGS = {"transaction.partition.verification.enable": "false"}
HANGS_SINCE_MS = NOW_MS - 2 * 3_600_000
OLD_GENERATION = 11  # of Produce: it does not say by itself that its partition takes part
PATIENCE_SECONDS = 30
LOOK_SECONDS = 0.02
TIMED = ("CurrentTransactionStartTimeMs", "TransactionDurationMs", "LastTimestamp", "Duration(min)")
FRUIT = ("--topic", "fruit", "--partition", "0")
LISTED: dict[str, tuple[str, ...]] = {
    "all": (),
    "all, by a negative duration": ("--duration-filter", "-1"),
    "those that take longer than nothing": ("--duration-filter", "0"),
    "those that take for days": ("--duration-filter", "100000000"),
    "by a pattern": ("--transactional-id-pattern", "(un)?done"),
    "by a pattern that nobody matches": ("--transactional-id-pattern", "don"),
    "by a bad pattern": ("--transactional-id-pattern", "(un"),
}
HANGING: dict[str, tuple[str, ...]] = {
    "of a broker": ("--broker-id", "1"),
    "of a broker, a longer time": ("--broker-id", "1", "--max-transaction-timeout", "180"),
    "of a broker and a topic": ("--broker-id", "1", "--topic", "fruit"),
    "of a topic": ("--topic", "fruit"),
    "of a partition": FRUIT,
    "of the other partition": ("--topic", "fruit", "--partition", "1"),
    "of no such topic": ("--topic", "nothing"),
    "of nothing": (),
    "of a partition of no topic": ("--partition", "0"),
}
ABORTED: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "no such transaction": (*FRUIT, "--start-offset", "77"),
    "of half a producer": (*FRUIT, "--producer-id", "5"),
}


class Transcript:
    """What the tool said at each step."""

    def __init__(self, bootstrap: str, *, is_late: bool) -> None:
        self.steps: dict[str, Ended] = {}
        self._bootstrap = bootstrap
        self._tools = KafkaTools(bootstrap, is_late=is_late)

    def write(self) -> "Transcript":
        try:
            with producers(self._bootstrap):
                hang(self._bootstrap, "hanging", partition=0)
                hang(self._bootstrap, "hanging too", partition=1)
                self._look()
                self._abort()
            self._say("list after all", "list")
        finally:
            self._tools.close()
        return self

    def _say(self, step: str, *arguments: str) -> None:
        ended = self._tools.end_of("transactions", *arguments)
        self.steps[step] = Ended(ended.status, blotted(ended.out), blotted(ended.err))

    def _look(self) -> None:
        for what, options in LISTED.items():
            self._say(f"list {what}", "list", *options)
        for name in ("fresh", "done", "undone", "busy", "hanging", "nobody"):
            self._say(f"describe {name}", "describe", "--transactional-id", name)
        for what, options in {
            "a partition": FRUIT,
            "the other partition": ("--topic", "fruit", "--partition", "1"),
            "a partition of a broker": (*FRUIT, "--broker-id", "1"),
        }.items():
            self._say(f"describe producers of {what}", "describe-producers", *options)
        for what, options in HANGING.items():
            self._say(f"find those that hang, {what}", "find-hanging", *options)

    def _abort(self) -> None:
        for what, options in ABORTED.items():
            self._say(f"abort {what}", "abort", *options)
        result = self._tools("transactions", "describe-producers", *FRUIT)
        (row,) = (line.split() for line in result.splitlines() if str(HANGS_SINCE_MS) in line)
        self._say("abort by its start", "abort", *FRUIT, "--start-offset", row[-1])
        self._say("abort it once more", "abort", *FRUIT, "--start-offset", row[-1])
        result = self._tools("transactions", "describe-producers", "--topic", "fruit", "--partition", "1")
        (row,) = (line.split() for line in result.splitlines() if str(HANGS_SINCE_MS) in line)
        who = ("--producer-id", row[0], "--producer-epoch", row[1], "--coordinator-epoch", row[2])
        self._say("abort by its producer", "abort", "--topic", "fruit", "--partition", "1", *who)
        for what, options in HANGING.items():
            self._say(f"find those that still hang, {what}", "find-hanging", *options)
        for index in ("0", "1"):
            self._say(
                f"describe what is left of {index}", "describe-producers", "--topic", "fruit", "--partition", index
            )
        self._say("force an end", "forceTerminateTransaction", "--transactional-id", "busy")
        self._say("force an end of nobody", "forceTerminateTransaction", "--transactional-id", "nobody")


@contextmanager
def producers(bootstrap: str) -> Iterator[None]:
    """One has begun nothing, one has committed, one has aborted, and one is in the midst of it."""
    client = Confluent(bootstrap)
    patient(client, client).create_topic("fruit", partitions=2)
    client.produce("fruit", [Record(value=b"v", partition=p, timestamp=NOW_MS) for p in (0, 0, 0, 1)])
    client.close()
    settings = {"bootstrap.servers": bootstrap, "transaction.timeout.ms": 300_000, "log_level": 2}
    made = {name: Producer({"transactional.id": name, **settings}) for name in ("fresh", "done", "undone", "busy")}
    for name, producer in made.items():
        producer.init_transactions(PATIENCE_SECONDS)
        if name == "fresh":
            continue
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("fruit", value=name, partition=partition)
        producer.flush(PATIENCE_SECONDS)
        if name == "done":
            producer.commit_transaction(PATIENCE_SECONDS)
        elif name == "undone":
            producer.abort_transaction(PATIENCE_SECONDS)
        if name != "busy":
            settle(bootstrap, name)
    yield
    del made


def connection(bootstrap: str) -> Client:
    host, port = bootstrap.split(":")
    return Client(host, int(port))


def settle(bootstrap: str, name: str) -> None:
    """Apache Kafka writes markers after it has answered."""
    client = connection(bootstrap)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            (result,) = client.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
            if result.transaction_state.startswith("Complete"):
                return
            assert time.monotonic() < deadline, f"{name} does not end"
            time.sleep(LOOK_SECONDS)
    finally:
        client.close()


def hang(bootstrap: str, name: str, partition: int) -> None:
    """As a producer whose request came too late would have done it, before brokers began to look."""
    client = connection(bootstrap)
    try:
        given = client.ask(init(name), 5)
        who = (given.producer_id, given.producer_epoch)
        late = produce(who, 0, b"late", topic="fruit", partitions=[partition], name=name, now_ms=HANGS_SINCE_MS)
        (result,) = client.ask(late, OLD_GENERATION).responses[0].partition_responses
        assert not result.error_code
    finally:
        client.close()


def blotted(said: str) -> str:
    """Without times, and tables sorted: their rows end with a column that has no name."""
    lines = [line.rstrip() for line in said.splitlines() if not line.startswith("\tat ")]
    header = lines[0].split() if lines else []
    if not header or header[0] not in ("TransactionalId", "CoordinatorId", "ProducerId", "Topic"):
        return "\n".join(re.sub(r"\(broker-\d+:|\d{13}", "…", line) for line in lines)
    rows = [line.split() for line in lines[1:]]
    for row in rows:
        for place, column in enumerate(header):
            if column in TIMED and place < len(row) and row[place] not in ("None", "-1"):
                row[place] = "…"
    return "\n".join("\t".join(row) for row in [header, *sorted(rows)])


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Ended], dict[str, Ended]]:
    """Ours and Kafka's."""
    folder = tmp_path_factory.mktemp("transcripts")
    with TriokaProcess(folder, SETTINGS) as broker:
        ours = Transcript(broker.bootstrap, is_late=False).write()
    with ApacheKafka(SETTINGS, parent=folder) as kafka:
        theirs = Transcript(kafka.bootstrap, is_late=True).write()
    return ours.steps, theirs.steps


def test_the_tool_says_the_same_of_both_brokers(transcripts: tuple[dict[str, Ended], dict[str, Ended]]) -> None:
    ours, theirs = transcripts
    assert ours.keys() == theirs.keys()
    differences = [
        f"{step}\nours: {ours[step]}\nKafka's: {theirs[step]}" for step in ours if ours[step] != theirs[step]
    ]
    assert not differences, "\n\n".join(differences)


def test_the_tool_understands_what_it_is_told(transcripts: tuple[dict[str, Ended], dict[str, Ended]]) -> None:
    """Two brokers of which it says the same nonsense would be equal, too."""
    ours, _ = transcripts
    assert re.search(r"^busy\t.*\tOngoing$", ours["list all"].out, re.MULTILINE)
    assert re.search(r"^undone\t.*\tCompleteAbort$", ours["list all"].out, re.MULTILINE)
    assert re.search(r"^1\tbusy\t.*\tOngoing\t300000\t.*fruit-0", ours["describe busy"].out, re.MULTILINE)
    assert re.search(r"^fruit\t0\t", ours["find those that hang, of a broker"].out, re.MULTILINE)
    assert "fruit" not in ours["find those that still hang, of a broker"].out
