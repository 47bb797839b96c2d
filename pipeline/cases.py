"""`trioka pipeline test`: cases of rows in and rows out, as files beside the definition.

    tests/<case>/in/<topic>.jsonl        one record in a line: its value; the word null is a null value
    tests/<case>/out/<table>.jsonl       the rows that the table must have, in any order, as JSON

A case runs the whole pipeline once, against a broker of its own, with an empty warehouse and checkpoint in a temporary
folder. Rows are compared in the columns that the file names.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError
from pyspark.errors import PySparkException

from .declaration.model import IcebergSink, ParquetSink, TopicSink
from .declaration.toml_reader import read_file
from .errors import InvalidPipeline, PipelineFailed
from .graph.spec import is_graph
from .graph_pipeline import GraphPipeline
from .pipeline import Pipeline
from .runner.run import spark_for

CASES, IN, OUT = "tests", "in", "out"
MAX_CASES = 200
MAX_ROWS_SHOWN = 5
BROKER_STOP_S = 30
SENT_WITHIN_S = 60
# Cases have few rows: all the time goes into starting tasks.
SMALL = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
Say = Callable[[str], None]
Rows = list[dict[str, Any]]


def run_cases(file: Path, names: tuple[str, ...], *, master: str, settings: Mapping[str, str], say: Say) -> int:
    """Run the cases of a pipeline; returns the number of those that failed, each of which `say` explains."""
    folder = (file if file.is_dir() else file.parent) / CASES
    found = sorted(one for one in folder.glob("*") if (one / OUT).is_dir())
    cases = [one for one in found if not names or one.name in names]
    if not cases or len(cases) > MAX_CASES:
        named = f" named {', '.join(names)}" if names else ""
        raise InvalidPipeline(
            f"{folder} has {len(cases)} cases{named}; a case is a folder with "
            f"{IN}/<topic>.jsonl and {OUT}/<table>.jsonl, and at most {MAX_CASES} are run."
        )
    failed = 0
    with temporary_broker() as bootstrap:
        for case in cases:
            problems = _run_case(file, case, bootstrap, master, {**SMALL, **settings})
            failed += bool(problems)
            say(f"{case.name}: {'failed' if problems else 'passed'}")
            for problem in problems:
                say(f"  {problem}")
    return failed


def _run_case(file: Path, case: Path, bootstrap: str, master: str, settings: Mapping[str, str]) -> list[str]:
    expected = {one.stem: _rows(one) for one in sorted((case / OUT).glob("*.jsonl"))}
    inputs = {one.stem: one for one in sorted((case / IN).glob("*.jsonl"))}
    scratch = Path(tempfile.mkdtemp(prefix="trioka-test-"))
    try:
        _send(bootstrap, inputs)
        run = _run_graph if is_graph(file) else _run_declared
        actual = run(file, scratch, bootstrap, list(expected), master, settings)
    except (PipelineFailed, PySparkException) as failure:
        return str(failure).splitlines()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        _delete(bootstrap, list(inputs))
    return [problem for name, rows in expected.items() for problem in differences(name, rows, actual.get(name))]


def _run_graph(
    file: Path, scratch: Path, bootstrap: str, tables: list[str], master: str, settings: Mapping[str, str]
) -> dict[str, Rows]:
    pipeline = GraphPipeline.read(file)
    # The catalog has a name of its own, because a session remembers the warehouse of one that it has used.
    catalog = re.sub(r"\W", "_", scratch.name)
    pipeline.spec = replace(
        pipeline.spec, checkpoint=str(scratch / "checkpoint"), warehouse=str(scratch / "warehouse"), catalog=catalog
    )
    with environment("KAFKA_BOOTSTRAP_SERVERS", bootstrap), pipeline.session(master=master, settings=settings) as spark:
        pipeline.run(once=True, master=master, settings=settings)
        found = {}
        with pipeline.session(master=master, settings=settings):
            for name in tables:
                if spark.catalog.tableExists(name):
                    found[name] = [json.loads(row) for row in spark.table(name).toJSON().collect()]
        return found


def _run_declared(
    file: Path, scratch: Path, bootstrap: str, tables: list[str], master: str, settings: Mapping[str, str]
) -> dict[str, Rows]:
    declared = read_file(file, bootstrap=bootstrap)
    catalog = re.sub(r"\W", "_", scratch.name)

    def moved(sink: Any) -> Any:
        if isinstance(sink, IcebergSink):
            return replace(sink, catalog=catalog, warehouse=str(scratch / "warehouse"), properties={})
        if isinstance(sink, ParquetSink):
            return replace(sink, path=str(scratch / Path(sink.path).name))
        return sink

    declared = replace(
        declared,
        checkpoint=str(scratch / "checkpoint"),
        sink=moved(declared.sink),
        dead_letters=moved(declared.dead_letters),
    )
    sinks = [one for one in (declared.sink, declared.dead_letters) if isinstance(one, IcebergSink | ParquetSink)]
    topics = [one.topic for one in (declared.sink, declared.dead_letters) if isinstance(one, TopicSink)]
    _send(bootstrap, dict.fromkeys(topics))
    found: dict[str, Rows] = {}
    try:
        with spark_for(declared, master, settings) as spark:
            Pipeline(declared).run(once=True, master=master, settings=settings)
            for sink in sinks:
                name = sink.table.split(".")[-1] if isinstance(sink, IcebergSink) else Path(sink.path).name
                if name in tables:
                    rows = Pipeline(replace(declared, sink=sink)).frame(spark)
                    found[name] = [json.loads(row) for row in rows.toJSON().collect()]
    finally:
        _delete(bootstrap, topics)
    return found


def differences(name: str, expected: Rows, actual: Rows | None) -> list[str]:
    """What is missing and what is too much in a table, in the columns that are expected."""
    if actual is None:
        return [f"{name}: there is no such table"] if expected else []
    columns = {column for row in expected for column in row}
    wanted = Counter(_text(row, columns) for row in expected)
    there = Counter(_text(row, columns) for row in actual)
    found = [(f"{name}: missing", wanted - there), (f"{name}: not expected", there - wanted)]
    lines = []
    for label, rows in found:
        each = sorted(rows.elements())
        lines += [f"{label}: {row}" for row in each[:MAX_ROWS_SHOWN]]
        if len(each) > MAX_ROWS_SHOWN:
            lines.append(f"{label}: and {len(each) - MAX_ROWS_SHOWN} more")
    return lines


def _text(row: Mapping[str, Any], columns: set[str]) -> str:
    """A null and a missing column are the same: Spark leaves nulls out of JSON."""
    return json.dumps({name: row[name] for name in sorted(columns) if row.get(name) is not None})


def _rows(file: Path) -> Rows:
    rows = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidPipeline(f"{file}:{number}: is not JSON: {error}.") from None
            if not isinstance(row, dict):
                raise InvalidPipeline(f"{file}:{number}: must be a JSON object.")
            rows.append(row)
    return rows


def create_topics(bootstrap: str, topics: Iterable[str], *, partitions: int = 1) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    wanted = {topic: {"num_partitions": partitions, "replication_factor": 1} for topic in topics}
    admin.create_topics(wanted, wait_for_metadata=True)
    admin.close()


def _send(bootstrap: str, inputs: Mapping[str, Path | None]) -> None:
    """Create the topics and send their records."""
    if not inputs:
        return
    try:
        create_topics(bootstrap, inputs)
        producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
        for topic, file in inputs.items():
            for line in file.read_bytes().splitlines() if file is not None else ():
                # A record without a value needs a key here.
                is_null = line.strip() == b"null"
                producer.send(topic, None if is_null else line, key=b"" if is_null else None)
        producer.flush(timeout=SENT_WITHIN_S)
        producer.close()
    except KafkaError as error:
        raise PipelineFailed(f"The records of the case were not taken: {error}.") from None


def _delete(bootstrap: str, topics: list[str]) -> None:
    if topics:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.delete_topics(topics)
        admin.close()


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def temporary_broker() -> Iterator[str]:
    """A broker in memory, in a process of its own; its address."""
    command = [sys.executable, "-m", "trioka", "dev", "--port", "0"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert broker.stdout is not None
        message = broker.stdout.readline() + broker.stdout.readline()
        found = re.search(r"Kafka\s+(\S+:\d+)", message)
        if found is None:
            raise PipelineFailed("The broker did not start: run trioka dev to see why.")
        yield found[1]
    finally:
        broker.terminate()
        broker.communicate(timeout=BROKER_STOP_S)
