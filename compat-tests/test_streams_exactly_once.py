"""An application of Kafka Streams that counts each word exactly once, whoever is killed.

The word count of Kafka's own examples tells of every single count. So, with `processing.guarantee=exactly_once_v2`,
what a consumer of committed records reads of a word is 1, 2, 3 and so on, each once, also when the application was
killed in the midst of it, and the broker too. The application throws its tables away then, and makes them anew from
their log.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import jars
import pytest
from broker_under_test import BROKERS
from clients.client import LATEST, Client, Record
from clients.confluent import Confluent
from clients.patience import patient
from copying import SETTINGS, messages_of, reader
from java_program import JavaProgram
from oracle import ApacheKafka
from test_streams import COUNTED, SPOKEN, WORD_COUNT
from toolchains import unavailable
from trioka_process import TriokaProcess

from trioka.pipeline.installation.cache import Unavailable

WORDS = ("all", "streams", "lead", "to", "kafka")
LINES = 1000  # of one word each, at a time: somebody is killed while a part of them is being counted
KILLS = 5  # at most, until one has come between two commits
# Between two commits there is time enough to kill somebody.
STREAMS = """
processing.guarantee=exactly_once_v2
session.timeout.ms=3000
heartbeat.interval.ms=500
transaction.timeout.ms=10000
max.poll.records=20
commit.interval.ms=2000
"""


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TriokaProcess | ApacheKafka]:
    request.getfixturevalue("apache_kafka")  # its jars are those of the application
    if request.param == "kafka":
        with ApacheKafka(SETTINGS, parent=tmp_path) as kafka:
            yield kafka
    else:
        with TriokaProcess(tmp_path, SETTINGS) as process:
            yield process


def test_each_word_is_counted_once(broker: TriokaProcess | ApacheKafka, tmp_path: Path) -> None:
    try:
        class_path = jars.class_path_with("streams_jars.txt")
    except Unavailable as missing:
        unavailable(missing)
    client = Confluent(broker.bootstrap)
    creator = patient(client, client)
    creator.create_topic(SPOKEN, partitions=2)
    creator.create_topic(COUNTED)
    settings = tmp_path / "streams.properties"
    settings.write_text(f"bootstrap.servers={broker.bootstrap}\nstate.dir={tmp_path}/state\n{STREAMS}")
    with JavaProgram(tmp_path, class_path, WORD_COUNT, settings) as application:
        spoken = 0
        for _ in range(KILLS):
            end = client.offset_at(COUNTED, LATEST)
            speak(client)
            spoken += LINES
            application.wait_until(lambda end=end: client.offset_at(COUNTED, LATEST) > end)  # type: ignore[misc]
            application.kill()
            application.start()
            application.wait_until(lambda spoken=spoken: len(counts(broker.bootstrap)) >= spoken)  # type: ignore[misc]
            if len(counts(broker.bootstrap, "read_uncommitted")) > spoken:
                break
        else:
            raise AssertionError("nobody was killed in the midst of it")
        end = client.offset_at(COUNTED, LATEST)
        speak(client)
        spoken += LINES
        application.wait_until(lambda: client.offset_at(COUNTED, LATEST) > end)
        broker.kill()
        broker.start()
        application.wait_until(lambda: len(counts(broker.bootstrap)) >= spoken)
    client.close()
    expected = [(word, number) for word in WORDS for number in range(1, spoken // len(WORDS) + 1)]
    assert sorted(counts(broker.bootstrap), key=lambda count: WORDS.index(count[0])) == expected


def speak(client: Client) -> None:
    now_ms = int(time.time() * 1000)
    lines = [WORDS[number % len(WORDS)].encode() for number in range(LINES)]
    client.produce(SPOKEN, [Record(value=line, partition=n % 2, timestamp=now_ms) for n, line in enumerate(lines)])


def counts(bootstrap: str, isolation: str = "read_committed") -> list[tuple[str, int]]:
    """What was said, in order: a word, and how often it was heard by then."""
    return [
        ((message.key() or b"").decode(), int.from_bytes(message.value() or b""))
        for message in messages_of(reader(bootstrap, isolation, COUNTED, 1), 1)
        if message.error() is None
    ]
