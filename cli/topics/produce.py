"""`trioka produce`: each line of standard input, or of a file, becomes a record. kafka-python sends them."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import click

from trioka.protocol.errors import BY_CODE, UnknownTopicOrPartition

from .. import problems
from ..client.settings import Settings
from ..configs import BROKER, described
from ..options import complete, with_settings
from ..terminal.failure import Exit, Failure
from ..terminal.output import is_stderr_terminal, write_stderr
from ..terminal.progress import Progress

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_LINE_BYTES: Final = 64 << 20
MAX_WARNED_HOSTS: Final = 3
LINGER_MS: Final = 5
MAX_SHOWN_PARTITIONS: Final = 5
GRACE_S: Final = 0.5  # for batches that were just abandoned, so that their reason can be reported
CLOSE_S: Final = 5.0


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
    _check(settings, name, partition)
    common: dict[str, Any] = {"headers": [_header(each) for each in headers], "partition": partition}
    with _Sender(settings, name, compression, acks) as sender, Progress("produce", "records") as progress:
        for line in _lines(file):
            value: bytes | None = line
            own_key = None if key is None else key.encode()
            if key_separator is not None:
                before, separator, after = line.partition(key_separator.encode())
                if separator:
                    own_key, value = before, after
            sender.send(value=None if null and not value else value, key=own_key, **common)
            progress.add()
    return sender.verdict()


class _Sender:
    """kafka-python's producer, with its errors as failures of this command line.

    It waits for responses no longer than the command's timeout: once when a record is sent, and once at the end for all
    records. kafka-python itself would wait without limit for a producer id that no broker can give.
    """

    def __init__(self, settings: Settings, topic: str, compression: str, acks: str) -> None:
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # this class explains the errors that it would log
        timeout_ms = int(settings.timeout_s * 1000)
        self._errors = KafkaError
        self._topic = topic
        self._timeout_s = settings.timeout_s
        self._producer = KafkaProducer(
            **settings.for_kafka_python() | {"request_timeout_ms": max(timeout_ms - LINGER_MS, 1)},
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=acks in ("all", "-1"),
            compression_type=None if compression == "none" else compression,
            linger_ms=LINGER_MS,
            max_block_ms=timeout_ms,
            delivery_timeout_ms=timeout_ms,  # retries included: a full disk justifies a few, but not two minutes
        )
        self._sent = self._failed = self._written = 0
        self._offsets: dict[int, tuple[int, int]] = {}  # first and last, by partition

    def __enter__(self) -> "_Sender":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Wait for the records in flight, unless the command has failed: then abandon them."""
        timeout_s = self._timeout_s + GRACE_S if kind is None else 0
        began = time.monotonic()
        try:
            self._producer.flush(timeout=timeout_s)
        except self._errors:
            self._give_up()
        finally:
            left_s = timeout_s - (time.monotonic() - began)
            self._producer.close(timeout=min(max(left_s, 0), CLOSE_S))

    def send(self, **record: Any) -> None:
        try:
            future = self._producer.send(self._topic, **record)
        except (self._errors, AssertionError, ValueError) as error:
            raise _explained(error, self._topic) from None
        self._sent += 1
        future.add_callback(self._count)
        future.add_errback(self._complain)

    def _count(self, metadata: Any) -> None:
        self._written += 1
        if metadata.offset >= 0:  # unknown with acks=0
            first, last = self._offsets.get(metadata.partition, (metadata.offset, metadata.offset))
            self._offsets[metadata.partition] = min(first, metadata.offset), max(last, metadata.offset)

    def _give_up(self) -> None:
        """Report records whose outcome is unknown."""
        unknown = self._sent - self._written - self._failed
        if unknown:
            self._failed += unknown
            what = f"{unknown} records of '{self._topic}' have no answer within {self._timeout_s:g} s"
            hints = ["they may be written or not", "look at the brokers: trioka doctor"]
            write_stderr(str(Failure(what, hints=hints)))

    def _complain(self, error: Exception) -> None:
        self._failed += 1
        if self._failed <= MAX_WARNED_HOSTS:
            write_stderr(str(_explained(error, self._topic)))

    def verdict(self) -> int:
        if is_stderr_terminal() and self._written:
            places = [f"{self._topic}:{each} {first}–{last}" for each, (first, last) in sorted(self._offsets.items())]
            more = ", …" if len(places) > MAX_SHOWN_PARTITIONS else ""
            write_stderr(f"{self._written} records written: {', '.join(places[:MAX_SHOWN_PARTITIONS])}{more}")
        if not self._failed:
            return Exit.OK
        write_stderr(f"{self._failed} of {self._sent} records were not written")
        return Exit.PARTLY if self._failed < self._sent else Exit.FAILED


def _check(settings: Settings, topic: str, partition: int | None) -> None:
    """Check that the records can be written to the topic and partition, before the first record is read."""
    with settings.kafka() as kafka:
        (result,) = kafka.metadata([topic]).topics
        if result.error_code == UnknownTopicOrPartition.code:
            broker = str(kafka.cluster().brokers[0].node_id)
            values = {entry.name: entry.value for entry in described(kafka, BROKER, [broker])[broker]}
            if values.get("auto.create.topics.enable") == "false":
                raise kafka.no_such_topic(topic)
            write_stderr(f"topic '{topic}' does not exist; the broker creates it")
        elif result.error_code:
            raise problems.from_error_code(result.error_code, f"topic '{topic}' cannot be written to")
        elif partition is not None and partition not in [each.partition_index for each in result.partitions]:
            what = f"topic '{topic}' has no partition {partition}: they are 0 to {len(result.partitions) - 1}"
            raise Failure(what, exit_code=Exit.NOT_FOUND)


def _explained(error: Exception, topic: str) -> Failure:
    code = getattr(error, "errno", None)
    if isinstance(code, int) and code in BY_CODE:
        return problems.from_error_code(code, f"a record was not written to '{topic}'")
    return Failure(f"a record was not written to '{topic}': {str(error) or type(error).__name__}")


def _header(text: str) -> tuple[str, bytes]:
    key, colon, value = text.partition(":")
    if not key or not colon:
        raise click.UsageError(f"-H {text} must be KEY:VALUE.")
    return key, value.encode()


def _lines(file: str | None) -> Iterator[bytes]:
    """Lines without their line ends."""
    with nullcontext(sys.stdin.buffer) if file is None else Path(file).open("rb") as source:
        while line := source.readline(MAX_LINE_BYTES):
            yield line.removesuffix(b"\n").removesuffix(b"\r")
