"""A client that is not written in Python: a program that reads one command per line and answers each with one line.

    → {"do": "offset_at", "topic": "t", "partition": 0, "timestamp": -1}
    ← {"done": 17}                      or  {"code": 3, "said": "…"}   with the broker's error code, -1 if it sent none

Bytes are hexadecimal. A record is written as [partition, key, value, headers, timestamp] and read as [offset, key,
value, headers, timestamp], where headers is a list of [name, value]. The program's one argument is the bootstrap
address, and it ends with its input.
"""

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .client import PATIENCE_SECONDS, Client, Cluster, Partition, Read, Record, Refused

LOG_TAIL_CHARS = 4000
# The program gives up by itself before it is ended.
ANSWER_TIMEOUT_SECONDS = 2 * PATIENCE_SECONDS
END_TIMEOUT_SECONDS = 10


class Program:
    """A child process that answers one command at a time. Its standard error is shown when it fails."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - close() closes it
        self._process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=environment,
        )

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        watch = threading.Timer(ANSWER_TIMEOUT_SECONDS, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.cancel()
            watch.join()
        if not line:
            requested = json.dumps(command)[:200]
            raise AssertionError(f"the program ended, or was too slow, at {requested}\n{self.log_tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def log_tail(self) -> str:
        self._said.seek(0)
        return self._said.read()[-LOG_TAIL_CHARS:]

    def close(self) -> None:
        """It ends when its input does, and is ended when it does not."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._said.close()


class ProgramClient(Client):
    def __init__(
        self,
        name: str,
        program: Program,
        *,
        lacks: Mapping[str, str] | None = None,
        alters_incrementally: bool = True,
    ) -> None:
        self.name = name
        self.lacks = lacks or {}
        self.alters_incrementally = alters_incrementally
        self._program = program

    @property
    def is_alive(self) -> bool:
        return self._program.is_alive

    def close(self) -> None:
        self._program.close()

    def _do(self, verb: str, **arguments: Any) -> Any:
        answer = self._program.ask({"do": verb, **arguments})
        if "code" in answer:
            raise Refused(answer["code"], answer["said"])
        return answer["done"]

    def cluster(self) -> Cluster:
        result = self._do("cluster")
        return Cluster(
            brokers={id: (host, port) for id, host, port in result["brokers"]},
            controller=result["controller"],
        )

    def topics(self) -> set[str]:
        return set(self._do("topics"))

    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self._do("create_topic", topic=topic, partitions=partitions, config=config or {})

    def delete_topic(self, topic: str) -> None:
        self._do("delete_topic", topic=topic)

    def describe_topic(self, topic: str) -> list[Partition]:
        result = self._do("describe_topic", topic=topic)
        return sorted(Partition(index, leader, tuple(replicas), tuple(isr)) for index, leader, replicas, isr in result)

    def add_partitions(self, topic: str, total: int) -> None:
        self._do("add_partitions", topic=topic, total=total)

    def topic_config(self, topic: str) -> dict[str, str | None]:
        return dict(self._do("describe_config", kind="topic", name=topic))

    def broker_config(self, broker: int) -> dict[str, str | None]:
        return dict(self._do("describe_config", kind="broker", name=str(broker)))

    def alter_topic_config(self, topic: str, put: Mapping[str, str], drop: Sequence[str] = ()) -> None:
        self._do("alter_config", topic=topic, put=dict(put), drop=list(drop))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._do("delete_records", topic=topic, partition=partition, before=before)

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[int]:
        lines = [
            [
                record.partition,
                as_hex(record.key),
                as_hex(record.value),
                [[name, as_hex(value)] for name, value in record.headers],
                record.timestamp,
            ]
            for record in records
        ]
        offsets: list[int] = self._do(
            "produce", topic=topic, records=lines, codec=codec, acks=acks, idempotent=idempotent
        )
        return offsets

    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Read]:
        result = self._do("consume", topic=topic, partition=partition, offset=offset, count=count)
        return [
            Read(
                at,
                Record(
                    key=as_bytes(key),
                    value=as_bytes(value),
                    headers=tuple((name, as_bytes(header)) for name, header in headers),
                    timestamp=timestamp,
                    partition=partition,
                ),
            )
            for at, key, value, headers, timestamp in result
        ]

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int:
        return int(self._do("offset_at", topic=topic, partition=partition, timestamp=timestamp))


def as_hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def as_bytes(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)
