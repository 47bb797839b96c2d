"""Exactly once, judged by real clients: they copy a topic in transactions, are killed, and so is the broker.

At the end every record stands in the output once, in the order of its partition, and nothing of what was aborted; no
transaction hangs; and the history of what all of them did and saw has no anomaly (tests/history/checker.py).

`make test-exactly-once` copies a hundred thousand records with each client, the older Java client and the newer
protocol of groups too, and kills more.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import jars
import pytest
from broker_under_test import BROKERS
from copies import GROUP, PARTITIONS, SOURCE, TARGET, must_be_copied
from copying import (
    LOOK_SECONDS,
    MAX_ENDS,
    PATIENCE_SECONDS,
    RECORDS_A_TRANSACTION,
    SETTINGS,
    Copying,
    Plan,
    read_all,
    write_source,
)
from history.checker import check
from java import java
from oracle import LOG_TAIL_CHARS, LOG_WARNINGS, QUICK, ApacheKafka, die_with_parent
from toolchains import Command, unavailable
from trioka_process import TriokaProcess

from trioka.pipeline.installation.cache import Unavailable

MESSAGE_COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
IS_LONG = bool(os.environ.get("TRIOKA_EXACTLY_ONCE"))
RECORDS = 100_000 if IS_LONG else 5000
KILLS = ("client",) * 8 + ("broker",) * 4 if IS_LONG else ("client", "client", "broker")
SEED = int(os.environ.get("TRIOKA_SEED", "1"))
CLIENTS = {
    "java": Plan(client="java", records=RECORDS, kills=KILLS, seed=SEED),
    "confluent-kafka": Plan(client="confluent-kafka", records=RECORDS, kills=KILLS, seed=SEED),
    "franz-go": Plan(client="franz-go", records=RECORDS, kills=KILLS, seed=SEED),
}
if IS_LONG:
    CLIENTS["java-2.8"] = Plan(client="java-2.8", records=RECORDS, kills=KILLS, seed=SEED)
    CLIENTS["java-consumer"] = Plan(client="java", protocol="consumer", records=RECORDS, kills=KILLS, seed=SEED)


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TriokaProcess | ApacheKafka]:
    if request.param == "kafka":
        request.getfixturevalue("apache_kafka")
        with ApacheKafka(SETTINGS, parent=tmp_path) as kafka:
            yield kafka
    else:
        with TriokaProcess(tmp_path, SETTINGS) as process:
            yield process


@pytest.mark.parametrize("name", CLIENTS)
def test_every_record_is_copied_exactly_once_whoever_is_killed(name: str, broker: TriokaProcess | ApacheKafka) -> None:
    plan = CLIENTS[name]
    copying = Copying(broker, plan)
    try:
        copying.run()
    except Unavailable as missing:
        unavailable(missing)
    must_be_copied(copying.copies.output, plan.each)
    assert copying.stable_ends == copying.ends, "a transaction hangs"
    logged = {read.value for reads in copying.log.values() for read in reads}
    assert logged & copying.copies.aborted, "nothing was aborted: there was nothing to hide"
    report = check(copying.copies.history())
    assert not report.anomalies, str(report)


def test_kafkas_own_copier_copies_every_record_once(broker: TriokaProcess | ApacheKafka, tmp_path: Path) -> None:
    """It aborts a third of its transactions; the broker is killed when it has copied a third of the records."""
    each = RECORDS // PARTITIONS
    write_source(broker.bootstrap, each)
    log = tmp_path / "copier.log"
    has_killed = False
    for _ in range(MAX_ENDS):
        copier = start_message_copier(broker.bootstrap, log)
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while copier.poll() is None:
                assert time.monotonic() < deadline, log.read_text()[-LOG_TAIL_CHARS:]
                if not has_killed and processed(log) > RECORDS / 3:
                    has_killed = True
                    broker.kill()
                    broker.start()
                time.sleep(LOOK_SECONDS)
        finally:
            copier.kill()
            copier.wait()
        if copier.returncode == 0:
            break
    assert copier.returncode == 0 and has_killed, log.read_text()[-LOG_TAIL_CHARS:]
    output, _ = read_all(broker.bootstrap, "read_committed")
    must_be_copied(output, each)


def start_message_copier(bootstrap: str, log: Path) -> subprocess.Popen[bytes]:
    options = ["--input-topic", SOURCE, "--input-partition", "-1", "--output-topic", TARGET, "--group-mode"]
    options += ["--consumer-group", GROUP, "--use-group-metadata", "--transactional-id", "copier"]
    options += ["--transaction-size", str(RECORDS_A_TRANSACTION), "--enable-random-aborts", "--broker-list", bootstrap]
    command: Command = [java(), *QUICK, *LOG_WARNINGS, "-cp", jars.class_path(), MESSAGE_COPIER, *options]
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, preexec_fn=die_with_parent())


def processed(log: Path) -> int:
    """As it says itself, line by line."""
    return max(map(int, re.findall(r'"totalProcessed":(\d+)', log.read_text())), default=0)
