"""An application of Kafka Streams, unmodified: the word count of Kafka's own examples, killed once and started again.

It needs much of a broker: a group whose leader hands out tasks, topics that it makes for itself (compacted, and one
whose records it deletes when they are used), and commits with metadata of its own.
"""

import time
from pathlib import Path

import jars
import pytest
from broker_under_test import Node
from clients.catalogue import Catalogue
from clients.client import EARLIEST, LATEST, Client, Record
from java_program import JavaProgram
from toolchains import unavailable

from trioka.pipeline.installation.cache import Unavailable

pytest_plugins = ["broker_under_test"]
pytestmark = pytest.mark.usefixtures("apache_kafka")

WORD_COUNT = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
SPOKEN, COUNTED = "streams-plaintext-input", "streams-wordcount-output"
APPLICATION = "streams-wordcount-"
# The session ends soon, so that the application may come back soon after it was killed.
SETTINGS = "session.timeout.ms=6000\nheartbeat.interval.ms=1000\ncommit.interval.ms=200\n"


def test_words_are_counted_also_after_the_application_was_killed(
    node: Node, catalogue: Catalogue, tmp_path: Path
) -> None:
    try:
        class_path = jars.class_path_with("streams_jars.txt")
    except Unavailable as missing:
        unavailable(missing)
    client = catalogue["confluent-kafka"]
    client.create_topic(SPOKEN, partitions=2)
    client.create_topic(COUNTED, config={"cleanup.policy": "compact"})
    settings = tmp_path / "streams.properties"
    settings.write_text(f"bootstrap.servers={node.bootstrap}\nstate.dir={tmp_path}/state\n{SETTINGS}")
    say(client, "all streams lead to kafka", "hello kafka streams")
    expected = {"all": 1, "streams": 2, "lead": 1, "to": 1, "kafka": 2, "hello": 1}
    with JavaProgram(tmp_path, class_path, WORD_COUNT, settings) as application:
        application.wait_until(lambda: is_at_least(counted(client), expected))
        application.kill()
        say(client, "hello again")
        application.start()
        expected |= {"hello": 2, "again": 1}
        application.wait_until(lambda: is_at_least(counted(client), expected))
    own = {topic.rpartition("-")[2] for topic in client.topics() if topic.startswith(APPLICATION) and topic != COUNTED}
    assert own == {"changelog", "repartition"}


def say(client: Client, *lines: str) -> None:
    now_ms = int(time.time() * 1000)
    records = [Record(value=line.encode(), partition=n % 2, timestamp=now_ms) for n, line in enumerate(lines)]
    client.produce(SPOKEN, records)


def counted(client: Client) -> dict[str, int]:
    end = client.offset_at(COUNTED, LATEST)
    read = client.consume(COUNTED, offset=EARLIEST, count=end) if end else []
    return {(each.record.key or b"").decode(): int.from_bytes(each.record.value or b"") for each in read}


def is_at_least(found: dict[str, int], expected: dict[str, int]) -> bool:
    """What was not committed when the application was killed, or was not heard of for too long, is counted twice, by
    default."""
    return found.keys() == expected.keys() and all(found[word] >= count for word, count in expected.items())
