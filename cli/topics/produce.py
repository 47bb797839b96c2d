"""`trioka produce`: each line of standard input, or of a file, becomes a record.

`cli/producer/` sends the records. With `--acks all` its producer is idempotent: each record is written once, and in the
order of the lines within a partition, though leaders move and responses are lost. With 1 or 0 records may be lost or
written twice.
"""

import random
import sys
import time
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Final

import click

from trioka.protocol.compression import Codec
from trioka.protocol.errors import NONE, UnknownTopicOrPartition
from trioka.protocol.partitioner import partition_of
from trioka.protocol.record_run import RunEncoder

from .. import problems
from ..client.cluster_client import Kafka
from ..client.settings import Settings
from ..configs import BROKER, described
from ..options import complete, with_settings
from ..producer.batches import Pair
from ..producer.lines import LineReader
from ..producer.sender import Sender
from ..producer.state import ALL, Producer, Rejection
from ..terminal.failure import Exit, Failure
from ..terminal.output import is_stderr_terminal, write_stderr
from ..terminal.progress import Progress

CODECS: Final = tuple(codec.name.lower() for codec in Codec)
LINGER_S: Final = 0.005
MAX_EXPLAINED: Final = 3
MAX_SHOWN_PARTITIONS: Final = 5
KNOWN_KEYS: Final = 4096  # whose partitions are kept


@click.command("produce")
@click.argument("topic", required=False, shell_complete=complete("topic"))
@click.option("--topic", "-t", "topic_option", metavar="TOPIC")
@click.option("--key", "-k", metavar="KEY", help="of every record")
@click.option("--header", "-H", "headers", multiple=True, metavar="KEY:VALUE", help="of every record")
@click.option("--partition", "-p", type=int, metavar="N", help="default: by key")
@click.option("--key-separator", "-K", metavar="SEP", help="the text before SEP in a line is the key")
@click.option("--compression", "-z", type=click.Choice(CODECS), default="none", metavar="CODEC", help=", ".join(CODECS))
@click.option("--acks", type=click.Choice(["all", "-1", "1", "0"]), default="all", metavar="N", help="all, 1 or 0")
@click.option("--file", "-f", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="instead of stdin")
@click.option("--null", is_flag=True, help="an empty value is null, which deletes the key in a compacted topic")
@with_settings
def produce(
    settings: Settings,
    topic: str | None,
    topic_option: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    key_separator: str | None,
    compression: str,
    acks: str,
    file: str | None,
    null: bool,
) -> int:
    """Each line of standard input becomes a record of TOPIC."""
    name = topic or topic_option
    if name is None:
        raise click.UsageError("name a topic.")
    encoder = RunEncoder(tuple(map(_header, headers)), key=None if key is None else key.encode(), null_when_empty=null)
    producer = Producer(
        encoder,
        acks=ALL if acks == "all" else int(acks),
        codec=Codec[compression.upper()],
        timeout_s=settings.timeout_s,
        linger_s=LINGER_S,
        chance=random.Random(),
    )
    outcome = _Outcome(name, producer, settings.timeout_s)
    with Sender(settings, name, producer) as sender:
        with settings.kafka() as kafka:
            _check(kafka, name)
            sender.prepare(kafka)
        if partition is not None and partition not in producer.partitions:
            what = f"topic '{name}' has no partition {partition}: they are 0 to {len(producer.partitions) - 1}"
            raise Failure(what, exit_code=Exit.NOT_FOUND)
        separator = None if key_separator is None else key_separator.encode()
        records = _Records(producer, partition, None if key is None else key.encode(), separator)
        with (
            nullcontext(sys.stdin.buffer) if file is None else Path(file).open("rb") as source,
            Progress("produce", "records") as progress,
        ):

            def add(lines: list[bytes]) -> None:
                records.add(lines)
                progress.add(len(lines))

            try:
                sender.run(LineReader(source), add, outcome.explain)
            except Failure:
                outcome.count()
                raise
        return outcome.verdict(is_interrupted=sender.is_interrupted)


class _Records:
    """Lines as records of the producer."""

    def __init__(self, producer: Producer, partition: int | None, key: bytes | None, separator: bytes | None) -> None:
        """`partition` is that of all lines, `key` that of lines without one of their own."""
        self._producer = producer
        self._partition = partition
        self._key = key
        self._separator = separator
        self._partition_of = lru_cache(KNOWN_KEYS)(partition_of)

    def add(self, lines: list[bytes]) -> None:
        now, timestamp = time.monotonic(), int(1000 * time.time())
        partition, partitions = self._partition, len(self._producer.partitions)
        if partition is None and self._key is not None:
            partition = self._partition_of(self._key, partitions)
        if self._separator is None:
            self._producer.add_values(lines, partition, timestamp, now)
            return
        by_partition: dict[int, list[Pair]] = {}
        for before, separator, after in [line.partition(self._separator) for line in lines]:
            if self._partition is not None:
                chosen = self._partition
            elif separator:
                chosen = self._partition_of(before, partitions)
            else:
                chosen = self._producer.partition_without_key() if partition is None else partition
            pair = (before, after) if separator else (None, before)
            if chosen in by_partition:
                by_partition[chosen].append(pair)
            else:
                by_partition[chosen] = [pair]
        for chosen, pairs in by_partition.items():
            self._producer.add_pairs(pairs, chosen, timestamp, now)


class _Outcome:
    """Says what became of the records."""

    def __init__(self, topic: str, producer: Producer, timeout_s: float) -> None:
        self._topic = topic
        self._producer = producer
        self._timeout_s = timeout_s
        self._explained = 0
        self._codes: set[int] = set()  # exit codes of what went wrong

    def explain(self) -> None:
        """Print why records were given up, for the first few."""
        rejections, self._producer.rejections = self._producer.rejections, []
        for each in rejections:
            failure = self._failure(each)
            self._codes.add(failure.exit_code)
            self._explained += 1
            if self._explained <= MAX_EXPLAINED:
                write_stderr(str(failure))

    def _failure(self, each: Rejection) -> Failure:
        count = "a record" if each.records == 1 else f"{each.records} records"
        what = f"{count} of '{self._topic}' partition {each.partition}"
        if each.error == NONE:
            hints = ["look at the brokers: trioka doctor"]
            unknown = "; they may be written or not" if each.may_be_written else ""
            return Failure(f"{what}: no answer within {self._timeout_s:g} s{unknown}", hints=hints)
        was = "may not have been written" if each.may_be_written else "not written"
        return problems.from_error_code(each.error, f"{what} {was}", each.message)

    def count(self) -> int:
        """Print and return how many records are not known to be written."""
        failed = self._producer.added - self._producer.written
        if failed:
            write_stderr(f"{failed} of {self._producer.added} records were not written, or their outcome is unknown")
        return failed

    def verdict(self, *, is_interrupted: bool) -> int:
        producer = self._producer
        if is_stderr_terminal() and producer.written:
            places = [
                f"{self._topic}:{each} {first}–{last}" for each, (first, last) in sorted(producer.offsets.items())
            ]
            more = ", …" if len(places) > MAX_SHOWN_PARTITIONS else ""
            write_stderr(f"{producer.written} records written: {', '.join(places[:MAX_SHOWN_PARTITIONS])}{more}")
        fatal = producer.fatal
        if fatal is not None:
            what = f"'{self._topic}' partition {fatal.partition} is not written to any more"
            failure = problems.from_error_code(fatal.error, what, fatal.message)
            self._codes.add(failure.exit_code)
            write_stderr(str(failure))
        failed = self.count()
        if producer.has_timed_out:
            write_stderr("the rest of the input was not read")
        if is_interrupted:
            return Exit.INTERRUPTED
        if not failed:
            return Exit.OK
        if producer.written:
            return Exit.PARTLY
        return self._codes.pop() if len(self._codes) == 1 else Exit.FAILED


def _check(kafka: Kafka, topic: str) -> None:
    """Check that the records can be written to the topic, before the first record is read."""
    (result,) = kafka.metadata([topic]).topics
    if result.error_code == UnknownTopicOrPartition.code:
        broker = str(kafka.cluster().brokers[0].node_id)
        values = {entry.name: entry.value for entry in described(kafka, BROKER, [broker])[broker]}
        if values.get("auto.create.topics.enable") == "false":
            raise kafka.no_such_topic(topic)
        write_stderr(f"topic '{topic}' does not exist; the broker creates it")
    elif result.error_code:
        raise problems.from_error_code(result.error_code, f"topic '{topic}' cannot be written to")


def _header(text: str) -> tuple[str, bytes]:
    key, colon, value = text.partition(":")
    if not key or not colon:
        raise click.UsageError(f"-H {text} must be KEY:VALUE.")
    return key, value.encode()
