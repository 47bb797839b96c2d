"""Log lines: every event has its name, no client can write a line of its own, and no record is ever in one."""

import ast
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from mutants.plant import assert_noticed
from support.fast_paths import connected, framed, said
from support.serving import ask, on_trio, running_broker
from support.topic_requests import create, produce

from trioka.broker.logs import formatters as log_lines
from trioka.broker.logs.formatters import EVENTS, RESERVED
from trioka.protocol.batch import build
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("broker", "cli", "cluster", "coordinator", "gateway", "storage", "protocol")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
SECRET = b"a-record-that-nobody-else-may-read"


def record(message: str, *arguments: object, logger: str = "trioka.dispatch") -> logging.LogRecord:
    return logging.LogRecord(logger, logging.WARNING, "x.py", 1, message, arguments, None)


# Repeated lines.


def complaint(
    at_s: float, message: str = "no: %s", argument: object = 1, level: int = logging.WARNING
) -> logging.LogRecord:
    made = logging.LogRecord("trioka.controller", level, "x.py", 1, message, (argument,), None)
    made.created = at_s
    return made


def repeated_once_a_minute(module: ModuleType) -> None:
    repetitions = module.RepeatFilter()
    assert [repetitions.filter(complaint(at)) for at in range(60)] == [True] + 59 * [False]
    again = complaint(60)
    assert repetitions.filter(again)
    assert json.loads(module.JsonFormatter().format(again))["repeated"] == 59
    assert module.HumanFormatter().format(again).endswith("no: 1 (and 59 times more since the last such line)")
    assert not repetitions.filter(complaint(61))


def other_words_pass(module: ModuleType) -> None:
    repetitions = module.RepeatFilter()
    assert all(repetitions.filter(complaint(0, argument=number)) for number in range(5))
    assert repetitions.filter(complaint(0, message="yes: %s"))
    assert all(repetitions.filter(complaint(0, level=logging.INFO)) for _ in range(5)), "information is no complaint"


def so_many_are_remembered_and_time_may_go_back(module: ModuleType) -> None:
    repetitions = module.RepeatFilter()
    for number in range(3 * module.MAX_REPEATED):
        assert repetitions.filter(complaint(1e9, argument=number))
        assert len(repetitions._last_written) <= module.MAX_REPEATED
    assert repetitions.filter(complaint(1.0, argument=3 * module.MAX_REPEATED - 1)), "not silent until it comes again"


REPETITIONS = [
    repeated_once_a_minute,
    other_words_pass,
    so_many_are_remembered_and_time_may_go_back,
]


@pytest.mark.parametrize("rule", REPETITIONS)
def test_a_complaint_is_not_repeated_for_ever(rule: Callable[[ModuleType], None]) -> None:
    rule(log_lines)


REPETITION_MISTAKES = [
    (
        "self._last_written[words] = (last, count + 1)\n            return False",
        "return True",
        repeated_once_a_minute,
    ),
    ("(last, count + 1)", "(record.created, count + 1)", repeated_once_a_minute),
    ("(record.name, message[:MAX_LINE])", "(record.name, str(record.msg))", other_words_pass),
    ("record.levelno < logging.WARNING", "False", other_words_pass),
    ("self._last_written.clear()", "pass", so_many_are_remembered_and_time_may_go_back),
    (
        "0 <= record.created - last < REPEAT_S",
        "record.created - last < REPEAT_S",
        so_many_are_remembered_and_time_may_go_back,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), REPETITION_MISTAKES)
def test_a_mistake_in_counting_complaints_is_noticed(
    right: str, wrong: str, rule: Callable[[ModuleType], None]
) -> None:
    assert_noticed(log_lines, right, wrong, rule)


# The table.


def logged() -> Iterator[tuple[str, str, str]]:
    """Where something is logged, by which logger, in which sentence."""
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        text = path.read_text()
        if "logging.getLogger" not in text and "log." not in text and "warn_once(" not in text:
            continue
        tree = ast.parse(text)
        loggers = {
            ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]): str(
                node.value.args[0].value
            )
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call)
            if ast.unparse(node.value.func) == "logging.getLogger"
            if node.value.args and isinstance(node.value.args[0], ast.Constant)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            place, called = f"{path.relative_to(ROOT)}:{node.lineno}", node.func.attr
            if called in LEVELS and ast.unparse(node.func.value) in {"log", "audit", "LOG", *loggers}:
                assert ast.unparse(node.func.value) in loggers, f"{place}: which logger?"
                logger, sentence = loggers[ast.unparse(node.func.value)], node.args[0]
            elif called == "warn_once" and len(node.args) > 1:
                logger, sentence = "trioka.dispatch", node.args[1]
            else:
                continue
            if isinstance(sentence, ast.Constant):
                yield place, logger, str(sentence.value)


def test_every_sentence_that_is_logged_has_the_name_of_its_event() -> None:
    found = list(logged())
    assert len(found) > 30
    nameless = [
        f"{place}: name it in broker/logs/formatters.py" for place, *event in found if tuple(event) not in EVENTS
    ]
    assert not nameless, "\n" + "\n".join(nameless)


def test_no_name_outlives_its_sentence() -> None:
    result = {(logger, sentence) for _, logger, sentence in logged()}
    assert set(EVENTS) <= result, set(EVENTS) - result


def test_a_name_has_a_field_for_everything_that_is_filled_in() -> None:
    for (_, sentence), event in EVENTS.items():
        assert len(event.fields) == sentence.count("%"), sentence
        assert not RESERVED & set(event.fields) and len(set(event.fields)) == len(event.fields)
        assert event.name == event.name.lower() and event.name.count(".") == 1


# The lines.


def a_line_for_machines_is_one_object_with_its_event_and_fields(lines: ModuleType) -> None:
    line = lines.JsonFormatter().format(
        record("closed %s on %s: %s", "127.0.0.1:5", "PLAINTEXT", ValueError("odd\nend"))
    )
    assert "\n" not in line
    said = json.loads(line)
    assert said["event"] == "connection.malformed"
    assert (said["peer"], said["listener"], said["reason"]) == ("127.0.0.1:5", "PLAINTEXT", "odd\nend")
    assert (said["level"], said["logger"]) == ("warning", "trioka.dispatch")
    assert said["message"] == "closed 127.0.0.1:5 on PLAINTEXT: odd\nend"
    assert said["time"].endswith("Z") and len(said["time"]) == len("2026-11-16T10:00:00.123Z")
    assert json.loads(lines.JsonFormatter().format(record("%d", 5)))["event"] == "trioka.dispatch.warning"


def no_input_begins_a_line_or_moves_a_cursor(lines: ModuleType) -> None:
    line = lines.HumanFormatter().format(record("topic %s", "x\n2026 ERROR all is lost\x1b[2J\u2028 ü"))
    assert "\n" not in line and "\x1b" not in line and "\u2028" not in line
    assert "ü" in line
    assert len(lines.HumanFormatter().format(record("%s", "x" * 100_000))) < 20_000
    assert len(lines.JsonFormatter().format(record("%s", "x" * 100_000))) < 20_000


RULES = [a_line_for_machines_is_one_object_with_its_event_and_fields, no_input_begins_a_line_or_moves_a_cursor]


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_holds(rule: object) -> None:
    rule(log_lines)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("printable(record.message)", "record.message", no_input_begins_a_line_or_moves_a_cursor),
        ("record.getMessage()[:MAX_LINE]", "record.getMessage()", no_input_begins_a_line_or_moves_a_cursor),
        ('"event": event.name,', '"event": record.name,', a_line_for_machines_is_one_object_with_its_event_and_fields),
        (
            "event.fields",
            "()",
            a_line_for_machines_is_one_object_with_its_event_and_fields,
        ),
    ],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: object) -> None:
    assert_noticed(log_lines, right, wrong, rule)  # type: ignore[arg-type]


def test_a_traceback_is_a_field_of_its_line() -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        failed = record("internal error: %s", "Fetch v12")
        failed.exc_info = sys.exc_info()
    said = json.loads(log_lines.JsonFormatter().format(failed))
    assert said["event"] == "bug.request" and said["exception"].endswith("ValueError: odd")


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [log_lines.event_of(each).name for each in caplog.records]


@on_trio
async def test_refused_connections_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path, max_connections_per_ip_overrides="127.0.0.1:0") as broker:
        for _ in range(3):
            assert await ask(broker, MetadataRequest(topics=None), 12) is None
    assert events(caplog).count("connection.refused") == 1


@on_trio
async def test_the_recovery_of_a_log_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running_broker(tmp_path) as broker:
        await create(broker, "orders")
        await produce(broker, "orders", 1)
    async with running_broker(tmp_path):
        assert "log.recovered" not in events(caplog)  # that stop was clean
    (tmp_path / ".kafka_cleanshutdown").unlink()
    async with running_broker(tmp_path):
        result = [each for each in caplog.records if log_lines.event_of(each).name == "log.recovered"]
        assert "orders-0" in {str(each.args[0]) for each in result if isinstance(each.args, tuple)}


@on_trio
async def test_no_record_is_ever_in_a_line(tmp_path: Path) -> None:
    """Requests with a record, cut and changed at every byte: no log line contains the record."""
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    handler.setFormatter(log_lines.JsonFormatter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        async with running_broker(tmp_path) as broker:
            await create(broker, "orders")
            data = ProduceRequest.Topic.Partition(index=0, records=bytes(build([Record(0, 1, SECRET, SECRET)])))
            topics = [ProduceRequest.Topic(name="orders", partition_data=[data])]
            whole = framed(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9, 1)
            for at in range(4, len(whole)):
                broker.dispatch._warned_at.clear()  # each warning is logged
                for bent in (whole[:at] + b"\xff" + whole[at + 1 :], len(whole[4:at]).to_bytes(4) + whole[4:at]):
                    connection = connected(broker)
                    said(connection, bent)
                    connection.close()
                    broker.connections.gone(connection)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    lines = [json.loads(line) for line in heard.getvalue().splitlines()]
    assert "connection.malformed" in {line["event"] for line in lines}
    assert SECRET.decode() not in heard.getvalue() and SECRET.hex() not in heard.getvalue()
