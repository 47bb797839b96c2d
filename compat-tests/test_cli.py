"""The command line works with Apache Kafka as it does with trioka: the same commands, the same answers.

Each line is run against both, in the same order. What must differ (addresses, ids, times, the brokers' own wording) is
made equal first; exit codes, tables, suggestions and error codes are compared. A few things are judged by Kafka's own
tools instead, and logins by an Apache Kafka that wants them.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka as kafka_python
import pytest
from confluent_kafka import Consumer, Producer
from oracle import ApacheKafka, run_tool
from support.command_line import Ended, command, home
from support.serving import HOST, LISTENER, broker_in_thread

from trioka.cli.client.cluster_client import TopicPartition
from trioka.cli.client.settings import find_settings
from trioka.cli.cluster.throttling import set_throttle, throttle_of
from trioka.cli.cluster.under_replicated import ends_of
from trioka.cli.terminal.failure import Exit
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

__all__ = ["home"]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
PATIENCE_S = 20
MAX_FED = 3000
TEN = b"".join(b"%d\n" % number for number in range(10))


class Both:
    """Apache Kafka and trioka."""

    def __init__(self, kafka: ApacheKafka, trioka: str) -> None:
        self.kafka = kafka
        self.addresses = (kafka.bootstrap, trioka)

    def run(self, *arguments: str, stdin: bytes = b"") -> list[Ended]:
        return [command(*arguments, at=address, stdin=stdin) for address in self.addresses]

    def same(self, *arguments: str, stdin: bytes = b"") -> Ended:
        """Fails unless both say the same."""
        kafka, trioka = (self._normal(ended) for ended in self.run(*arguments, stdin=stdin))
        assert kafka == trioka, f"trioka {' '.join(arguments)}"
        return trioka

    def _normal(self, ended: Ended) -> Ended:
        def words(text: str) -> str:
            for address in self.addresses:
                text = text.replace(address, "BROKER")
            text = re.sub(r"\b[\w-]{22}(?![\w-])", "ID", text)
            return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)

        # The sentence of an error ends in the broker's own words, which stand behind the last colon.
        talk = re.sub(r"(?m)^(error: [^:\n]*): [^\n]*?( *\[TRK)", r"\1 \2", words(ended.stderr))
        return Ended(ended.code, words(ended.out), re.sub(" {2,}", "  ", talk))


@pytest.fixture(scope="module")
def both(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with ApacheKafka() as kafka, broker_in_thread(tmp_path_factory.mktemp("trioka")) as broker:
        yield Both(kafka, f"{HOST}:{broker.addresses[LISTENER][1]}")


def fill(both: Both, topic: str, partitions: int = 1) -> None:
    assert both.same("topics", "create", topic, "--partitions", str(partitions)).code == Exit.OK
    for partition in range(partitions):
        assert both.same("produce", topic, "-p", str(partition), stdin=TEN).code == Exit.OK


def test_topics(both: Both) -> None:
    both.same(
        "topics", "create", "life", "--partitions", "3", "-c", "retention.ms=60000", "-c", "cleanup.policy=compact"
    )
    both.same("topics", "create", "life", "other", "--if-not-exists")
    assert both.same("topics", "create", "life").code == Exit.EXISTS
    for form in ("table", "wide", "json", "yaml", "csv", "name"):
        both.same("topics", "describe", "life", "-o", form)
        both.same("topics", "list", "--exclude-internal", "-o", form)
    both.same(
        "topics", "alter", "life", "--partitions", "5", "-c", "retention.ms=70000", "--delete-config", "cleanup.policy"
    )
    (result,) = both.same("topics", "describe", "life", "-o", "json").rows
    assert result["configs"] == {"retention.ms": "70000"} and len(result["partitions"]) == 5
    assert both.same("topics", "delete", "life").code == Exit.OK
    assert both.same("topics", "delete", "life", "other", "-y").code == Exit.OK
    assert both.same("topics", "describe", "life").code == Exit.NOT_FOUND


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("topics create bad/name", Exit.FAILED),
        ("topics create x -c retention.mss=1", Exit.FAILED),
        ("topics create x -c retention.ms=soon", Exit.FAILED),
        ("topics create x --partitions 0", Exit.FAILED),
        ("topics create x --replication-factor 9", Exit.FAILED),
        ("topics alter nowhere --partitions 3", Exit.NOT_FOUND),
        ("topics delete nowhere -y", Exit.NOT_FOUND),
        ("topics trim nowhere --all", Exit.NOT_FOUND),
        ("config set retention.ms=1 --topic nowhere", Exit.NOT_FOUND),
        ("config get retention.ms --topic nowhere", Exit.NOT_FOUND),
        ("config get no.such.key", Exit.NOT_FOUND),
        ("config show --broker 99", Exit.FAILED),
        ("consume nowhere", Exit.NOT_FOUND),
        ("groups describe nobody", Exit.NOT_FOUND),
        ("groups delete nobody -y", Exit.NOT_FOUND),
        ("lag nobody", Exit.NOT_FOUND),
    ],
)
def test_what_goes_wrong_goes_wrong_alike(both: Both, line: str, code: int) -> None:
    ended = both.same(*line.split())
    assert ended.code == code, ended
    assert "Traceback" not in ended.stderr


def test_records(both: Both) -> None:
    fill(both, "records", 2)
    both.same("produce", "records", "-K", "=", "-H", "a:b", "-z", "gzip", "-p", "0", stdin=b"k=v\nnothing\n")
    form = ("-f", "%t %p %o %k %s %h\\n")
    for where in ("start", "end", "5", "+3", "-2", "2:4", "@2000-01-01"):
        both.same("consume", "records", "-p", "0", "-e", "-o", where, *form)
    both.same("consume", "records", "-e", "-p", "1", "-f", "%s,", "--grep", "[2-4]")
    both.same("topics", "trim", "records", "--to-offset", "4", "-y")
    both.same("topics", "describe", "records", "-o", "wide")
    both.same("consume", "records", "-p", "1", "-e")


def test_lines_that_a_broker_refuses_cost_no_others(both: Both) -> None:
    """Each refused batch begins a new producer epoch, and the batches behind it are numbered again."""
    both.same("topics", "create", "narrow", "-c", "max.message.bytes=2000")
    lines = [b"%d" % number for number in range(4000)]
    for place in (3500, 2000, 1000, 0):
        lines.insert(place, b"x" * 5000)
    ended = both.same("produce", "narrow", stdin=b"\n".join(lines))
    assert ended.code == Exit.PARTLY and "MESSAGE_TOO_LARGE" in ended.stderr and "4 of 4004 records" in ended.stderr
    assert both.same("consume", "narrow", "-e").out.split() == [str(number) for number in range(4000)]
    both.same("topics", "create", "keys-only", "-c", "cleanup.policy=compact")
    ended = both.same("produce", "keys-only", "-K", "=", stdin=b"a=1\nno key\nb=2\n")
    assert ended.code == Exit.PARTLY and "1 of 3 records" in ended.stderr
    assert both.same("consume", "keys-only", "-e", "-f", "%k=%s ").out == "a=1 b=2 "


def test_configuration(both: Both) -> None:
    both.same("topics", "create", "tuned")
    on = ("--topic", "tuned")
    both.same("config", "set", "retention.ms=7", "segment.bytes=2097152", *on)
    both.same("config", "show", *on)
    both.same("config", "unset", "retention.ms", *on)
    both.same("config", "show", "-o", "json", *on)
    both.same("config", "get", "retention.ms", *on)
    assert both.same("config", "set", "retention.ms=x", *on).code == Exit.FAILED
    both.same("config", "set", "message.max.bytes=1234567", "--broker", "default")
    both.same("config", "get", "message.max.bytes", "--broker", "1")
    both.same("config", "unset", "message.max.bytes", "--broker", "default")
    kafka, trioka = both.run("config", "show", "--all", "-o", "name", *on)
    assert kafka == trioka


def test_offsets_are_reset_by_a_plan_and_taken_back(both: Both, home: Path) -> None:
    fill(both, "moving", 2)
    reset = ("groups", "reset-offsets", "movers", "--topic", "moving")
    both.same(*reset, "--to-latest")  # only the plan
    assert both.same("groups", "list").lines == []
    both.same(*reset, "--to-earliest", "--execute")
    both.same(*reset, "--shift-by", "4", "-y")
    both.same("groups", "reset-offsets", "--group", "movers", "--topic", "moving:1", "--to-offset", "9", "-y")
    both.same("groups", "describe", "--group", "movers")
    both.same("groups", "undo", "movers", "-y")
    both.same("groups", "reset-offsets", "movers", "--all-topics", "--by-duration", "1h", "--dry-run")
    assert both.same("groups", "describe", "movers").lines == [
        ["moving", "0", "4", "10", "6", "-", "-"],
        ["moving", "1", "4", "10", "6", "-", "-"],
    ]
    both.same("groups", "undo", "movers", "-y")
    both.same("groups", "undo", "movers", "-y")
    both.same("groups", "describe", "movers")
    assert both.same("groups", "undo", "movers", "-y").code == Exit.NOT_FOUND


def test_a_deleted_group_comes_back(both: Both, home: Path) -> None:
    fill(both, "kept")
    both.same("groups", "reset-offsets", "keepers", "--topic", "kept", "--to-offset", "6", "-y")
    both.same("groups", "delete", "keepers")
    both.same("groups", "delete", "keepers", "-y")
    assert both.same("groups", "describe", "keepers").code == Exit.NOT_FOUND
    both.same("groups", "undo", "keepers", "-y")
    assert both.same("groups", "describe", "keepers").lines == [["kept", "0", "6", "10", "4", "-", "-"]]
    both.same("groups", "delete", "keepers", "--topic", "kept", "-y")


def test_a_group_with_a_member(both: Both, home: Path) -> None:
    fill(both, "read")
    readers = [_reader(address) for address in both.addresses]
    try:
        for line in (
            ("groups", "describe", "readers"),
            ("groups", "describe", "readers", "--state"),
            ("groups", "list", "--state", "stable"),
        ):
            assert both.same(*line).code == Exit.OK
        for ended in both.run("groups", "describe", "readers", "--members", "-o", "json"):
            assert [(row["client"], row["partitions"]) for row in ended.rows] == [("reader", ["read:0"])]
        for words in ("reset-offsets readers --topic read --to-latest -y", "delete readers -y"):
            refused = both.same("groups", *words.split())
            assert refused.code == Exit.FAILED and "group 'readers' has members (Stable)" in refused.stderr
        _lag_is_the_same(both)
    finally:
        for reader in readers:
            reader.close()


def _reader(address: str) -> Any:
    """A member of the group `readers` that has read three records and committed."""
    reader = kafka_python.KafkaConsumer(
        "read",
        bootstrap_servers=address,
        group_id="readers",
        client_id="reader",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    count = 0
    while count < 3:
        count += sum(map(len, reader.poll(timeout_ms=500, max_records=3 - count).values()))
    reader.commit()
    return reader


def _lag_is_the_same(both: Both) -> None:
    for ended in both.run("lag", "readers", "-o", "json"):
        (row,) = ended.rows
        assert (row["committed"], row["end"], row["lag"], row["status"]) == (3, 10, 7, "lagging")
        assert row["time_lag_ms"] >= 0 and 0 < row["loses_data_in_ms"] <= 604_800_000
    assert both.run("lag", "readers", "--max", "7")[0].code == Exit.OK
    assert {ended.code for ended in both.run("lag", "--all", "--max", "6")} == {Exit.UNHEALTHY}
    assert {ended.code for ended in both.run("lag", "readers", "--max-time", "0ms")} == {Exit.UNHEALTHY}
    for ended in both.run("lag", "readers", "--sample", "100ms", "-o", "json"):
        assert (ended.rows[0]["in_per_s"], ended.rows[0]["out_per_s"], ended.rows[0]["status"]) == (0, 0, "lagging")


def test_a_group_reads_on_where_it_stopped(both: Both, home: Path) -> None:
    fill(both, "continued")
    assert both.same("consume", "continued", "-g", "walkers", "-n", "4", "-f", "%s ").out == "0 1 2 3 "
    assert both.same("consume", "continued", "-g", "walkers", "-e", "-f", "%s ").out == "4 5 6 7 8 9 "


def test_a_cluster_of_one(both: Both, home: Path) -> None:
    fill(both, "alone", 2)
    for form in ("table", "json"):
        assert both.same("cluster", "under-replicated", "-o", form).code == Exit.OK
    assert both.same("cluster", "reassign", "--auto").code == Exit.OK
    assert both.same("cluster", "drain", "9").code == Exit.NOT_FOUND
    assert both.same("cluster", "elect-leaders", "alone").code == Exit.OK
    plan = home / "plan.json"
    plan.write_text('{"partitions": [{"topic": "alone", "partition": 0, "replicas": [9]}]}')
    assert both.same("cluster", "reassign", "--plan", str(plan), "--execute").code == Exit.FAILED
    assert both.same("cluster", "reassign", "--plan", str(plan), "-y", "--throttle", "1MB").code == Exit.FAILED
    assert "throttled" not in both.same("config", "show", "--topic", "alone").out  # nothing moves, nothing is throttled
    assert both.same("cluster", "reassign", "--auto", "-y", "--throttle", "50MB").code == Exit.OK
    assert both.same("cluster", "reassign", "--throttle", "off").out == "nothing is throttled\n"
    for ended in both.run("cluster", "status", "-o", "json"):
        (row,) = ended.rows
        assert (ended.code, row["status"], row["brokers"], row["controller"]) == (Exit.OK, "HEALTHY", "1/1", 1)
    for ended in both.run("cluster", "brokers", "-o", "json"):
        assert [(row["id"], row["state"]) for row in ended.rows] == [(1, "up")]
    for ended in both.run("cluster", "quorum", "-o", "json"):
        assert [(row["node"], row["role"], row["lag"]) for row in ended.rows] == [(1, "leader", 0)]


def test_a_throttle_is_set_and_taken_away(both: Both, home: Path) -> None:
    fill(both, "slow")
    place = TopicPartition("slow", 0)
    for address in both.addresses:
        with find_settings(bootstrap_server=address, command_config=None, context=None).kafka() as kafka:
            set_throttle(kafka, throttle_of({place: (1,)}, {place: (1, 2)}), 1_000_000)
            assert ends_of(kafka, 1, [place]) == {place: 10}  # asked as a follower would be
    assert [line[:2] for line in both.same("config", "show", "--topic", "slow").lines] == [
        ["follower.replication.throttled.replicas", "0:2"],
        ["leader.replication.throttled.replicas", "0:1"],
    ]
    for side in ("leader", "follower"):
        key = f"{side}.replication.throttled.rate"
        assert both.same("config", "get", key, "--broker", "1").out == "1000000\n"
    assert both.same("cluster", "reassign", "--throttle", "off").code == Exit.OK
    assert both.same("config", "show", "--topic", "slow").lines == []
    for ended in both.run("config", "show", "--broker", "1", "-o", "name"):
        assert "throttled" not in ended.out


def test_values_are_decoded_by_their_schema(both: Both, home: Path) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    (home / "order.avsc").write_text(json.dumps(schema))
    both.same("topics", "create", "typed")
    both.same("produce", "typed", stdin=b"\x0e\n")  # 7, as Avro writes it
    avro = ("--decode", "avro", "--schema", str(home / "order.avsc"))
    assert both.same("consume", "typed", "-e", *avro).out == '{"id": 7}\n'
    both.same("produce", "typed", stdin=b"no order\n")
    assert both.same("consume", "typed", "-e", *avro).code == Exit.PARTLY


def test_the_doctor_the_bench_and_the_files(both: Both) -> None:
    for ended in both.run("doctor", "-o", "json"):
        assert ended.code == Exit.OK and {row["status"] for row in ended.rows} == {"ok"}, ended
    for what in ("produce", "consume", "e2e"):
        assert [ended.rows[0]["records"] for ended in both.run("bench", what, "--msgs", "20", "-o", "json")] == [20, 20]
    fill(both, "filed")
    place = str(both.kafka.partition("filed-0"))
    assert command("segments", "ls", place, "-o", "json").rows[0]["records"] == 10
    assert [row["value"] for row in command("segments", "dump", place, "--records", "-o", "json").rows] == list(
        "0123456789"
    )
    assert command("segments", "verify", str(both.kafka.data_dir)).code == Exit.OK


def test_kafkas_own_tools_see_what_ours_did(both: Both, home: Path) -> None:
    fill(both, "judged")
    both.same("groups", "reset-offsets", "judges", "--topic", "judged", "--to-offset", "3", "-y")
    for address in both.addresses:
        result = run_tool(GROUPS, "--bootstrap-server", address, "--describe", "--group", "judges", merged=True)
        assert re.search(r"judges\s+judged\s+0\s+3\s+10\s+7", result), result
    plan = run_tool(
        GROUPS, "--bootstrap-server", both.kafka.bootstrap, "--group", "judges", "--topic", "judged",
        "--reset-offsets", "--shift-by", "-2", "--dry-run",
    )  # fmt: skip
    (ours,) = command(
        "groups",
        "reset-offsets",
        "judges",
        "--topic",
        "judged",
        "--shift-by",
        "-2",
        "-o",
        "json",
        at=both.kafka.bootstrap,
    ).rows
    assert re.search(rf"judges\s+judged\s+0\s+{ours['new']}\b", plan), plan


def test_a_controller_is_named_as_one(both: Both) -> None:
    ended = command("topics", "list", "-b", f"127.0.0.1:{both.kafka._controller_port}")
    assert ended.code == Exit.UNREACHABLE and "TRK-2012 A_CONTROLLER" in ended.stderr


# -- logins ------------------------------------------------------------------------------------------------------------

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = 'user_admin="a" user_ann="b"'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
WITH_LOGINS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} username="admin" password="a" {USERS};',
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS;User:eve",
}


def login(folder: Path, mechanism: str, user: str, password: str) -> tuple[str, str]:
    file = folder / f"{mechanism}-{user}-{password}.properties"
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} username="{user}" password="{password}";\n'
    )
    return "--command-config", str(file)


def test_logins(apache_kafka: None, home: Path) -> None:
    with ApacheKafka(WITH_LOGINS) as kafka:
        at = kafka.bootstrap
        stranger = command("topics", "list", "--timeout", "5s", at=at)
        assert stranger.code == Exit.UNREACHABLE and "TRK-2007" in stranger.stderr
        admin = login(home, "PLAIN", "admin", "a")
        assert command("topics", "create", "secret", *admin, at=at).code == Exit.OK
        assert command("produce", "secret", *admin, at=at, stdin=b"hush\n").code == Exit.OK
        assert command("consume", "secret", "-e", *admin, at=at).out == "hush\n"
        wrong = command("topics", "list", *login(home, "PLAIN", "admin", "x"), at=at)
        assert wrong.code == Exit.UNAUTHORISED and "TRK-1058 SASL_AUTHENTICATION_FAILED" in wrong.stderr
        denied = command("topics", "create", "mine", *login(home, "PLAIN", "ann", "b"), at=at)
        assert denied.code == Exit.UNAUTHORISED and "AUTHORIZATION_FAILED" in denied.stderr
        _create_scram_user(at, admin[1], "eve", "p,=ss")
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            scram = login(home, mechanism, "eve", "p,=ss")
            deadline = time.monotonic() + PATIENCE_S  # a user is confirmed before the broker has heard of it
            while command("topics", "list", *scram, at=at).code and time.monotonic() < deadline:
                time.sleep(0.1)
            assert command("topics", "list", "-o", "name", *scram, at=at).out == "secret\n"
            assert command("topics", "list", *login(home, mechanism, "eve", "no"), at=at).code == Exit.UNAUTHORISED
        odd = command("topics", "list", *login(home, "GSSAPI", "eve", "x"), at=at)
        assert odd.code == Exit.USAGE and "SCRAM-SHA-512, OAUTHBEARER are known" in odd.stderr


def _create_scram_user(at: str, config: str, user: str, password: str) -> None:
    salt, iterations = b"salt of the test", 4096
    Upsertion = AlterUserScramCredentialsRequest.Upsertion
    upsertions = [
        Upsertion(
            name=user,
            mechanism=number,
            iterations=iterations,
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations),
        )
        for number, name in ((1, "sha256"), (2, "sha512"))
    ]
    with find_settings(bootstrap_server=at, command_config=config, context=None).kafka() as kafka:
        for upsertion in upsertions:  # a request takes a user once
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
            answer = kafka.ask_controller(request, lambda result: [each.error_code for each in result.results])
            assert [each.error_code for each in answer.results] == [0]


# Groups that stay: behind the tests that list all groups.


@pytest.mark.parametrize("flags", ["", "-z gzip", "-z snappy", "-z lz4", "-z zstd", "--acks 1"])
def test_many_lines_arrive_once_and_in_order(both: Both, flags: str) -> None:
    name = "-".join(["many", *flags.replace("-", "").split()])
    both.same("topics", "create", name, "--partitions", "3")
    count = 100_000
    data = b"".join(b"%d\n" % number for number in range(count))
    assert both.same("produce", name, *flags.split(), stdin=data).code == Exit.OK
    for ended in both.run("consume", name, "-e", "-f", "%p %s\n", "-g", "readers-of-many"):
        by_partition: dict[str, list[int]] = {}
        for line in ended.out.splitlines():
            partition, number = line.split()
            by_partition.setdefault(partition, []).append(int(number))
        assert all(numbers == sorted(numbers) for numbers in by_partition.values())
        assert sorted(number for numbers in by_partition.values() for number in numbers) == list(range(count))


def test_transactions(both: Both) -> None:
    both.same("topics", "create", "transactions")
    for address in both.addresses:
        producer = kafka_python.KafkaProducer(bootstrap_servers=address, transactional_id="t")
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send("transactions", b"%d" % number)
            producer.flush()
            (producer.abort_transaction if number % 2 else producer.commit_transaction)()
        producer.begin_transaction()
        producer.send("transactions", b"open").get(PATIENCE_S)
        assert command("consume", "transactions", "-e", "--read-committed", at=address).out == "0\n2\n4\n"
        group = ("-g", "careful", "-f", "%s ")
        assert command("consume", "transactions", "-e", "--read-committed", *group, at=address).out == "0 2 4 "
        producer.commit_transaction()
        producer.close()
        assert command("consume", "transactions", "-e", "--read-committed", *group, at=address).out == "open "
    assert both.same("consume", "transactions", "-e").out == "0\n1\n2\n3\n4\n5\nopen\n"


@pytest.mark.nightly
def test_a_member_of_the_new_protocol_shares_with_the_command(both: Both) -> None:
    """The group has the type `consumer`; its coordinator translates for the command, which speaks the classic one."""
    both.same("topics", "create", "shared", "--partitions", "2")
    for address in both.addresses:
        settings = {"bootstrap.servers": address, "group.id": "mixed", "group.protocol": "consumer"}
        other = Consumer(settings | {"auto.offset.reset": "earliest"})
        other.subscribe(["shared"])
        deadline = time.monotonic() + PATIENCE_S
        while len(other.assignment()) < 2 and time.monotonic() < deadline:
            other.poll(0.1)
        assert len(other.assignment()) == 2
        found: list[bytes | None] = []
        stopped = threading.Event()

        def read(other: Any = other, found: list[bytes | None] = found, stopped: Any = stopped) -> None:
            while not stopped.is_set():
                if (message := other.poll(0.05)) is not None and message.error() is None:
                    found.append(message.value())

        thread = threading.Thread(target=read)
        thread.start()
        feeder = threading.Thread(target=feed, args=(address, stopped))
        feeder.start()
        try:
            ended = command("consume", "shared", "-g", "mixed", "-n", "5", "-f", "%s ", at=address)
        finally:
            stopped.set()
            thread.join(PATIENCE_S)
            feeder.join(PATIENCE_S)
            other.close()
        assert ended.code == Exit.OK and len(ended.out.split()) == 5, ended.stderr
        assert not {value.decode() for value in found if value is not None} & set(ended.out.split())


def feed(address: str, stopped: threading.Event) -> None:
    """New records in both partitions."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    for number in range(MAX_FED):
        if stopped.wait(0.02):
            break
        producer.produce("shared", b"%d" % number, partition=number % 2)
        producer.poll(0)
    producer.flush(PATIENCE_S)
