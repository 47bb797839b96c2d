"""Measures the cost of the producer state per idempotent batch: `python bench/producers.py`, in µs of CPU.

First by itself, and then in a whole broker, from the received bytes to the response: Produce requests of 16 KB, several
at once as a client with five in flight sends them, with and without sequences, in turns. There is no socket, whose cost
is the same for both, so the printed ratio is larger than the total effect of idempotence on a broker.
"""

import struct
import tempfile
from pathlib import Path
from random import Random
from statistics import median
from time import process_time

import request
import trio
from crc32c import crc32c

from trioka.broker.broker import Broker
from trioka.broker.clock import SystemClock
from trioka.broker.config.listeners import node_of
from trioka.protocol.batch import BatchHeader, build, read_header
from trioka.protocol.record import Record
from trioka.storage.files.disk import OsDisk
from trioka.storage.producers.producer_snapshot import SnapshotFiles
from trioka.storage.producers.producer_state import ProducerState
from trioka.testing.disks.memory_disk import MemoryDisk

PRODUCERS = 100
BATCHES = 200_000
ROUNDS = 5
IN_FLIGHT = (1, 5)
RECORDS, RECORD_BYTES = 148, 100  # 16 KB in total
BURSTS, TURNS = 10, 200
PRODUCER = 7
# The place of a batch's CRC, the range that the CRC covers, and the place of its sequence.
CRC, COVERED, SEQUENCE = 17, 21, 53


def batches(*, transactional: bool) -> list[BatchHeader]:
    template = read_header(build([Record(0, 1, None, b"")], producer_id=0, producer_epoch=0, base_sequence=0))
    attributes = 0x10 if transactional else 0
    return [
        template._replace(producer_id=number % PRODUCERS, base_sequence=number // PRODUCERS, attributes=attributes)
        for number in range(BATCHES)
    ]


def measure(headers: list[BatchHeader]) -> tuple[float, float]:
    """Microseconds of check and of apply."""
    checking = applying = 0.0
    state = ProducerState(SnapshotFiles(MemoryDisk(), "/"))
    for start in range(0, len(headers), PRODUCERS):
        some = headers[start : start + PRODUCERS]
        began = process_time()
        for header in some:
            state.check(header)
        checked = process_time()
        for offset, header in enumerate(some, start):
            state.apply(header, offset, 1)
        applying += process_time() - checked
        checking += checked - began
    return checking / len(headers) * 1e6, applying / len(headers) * 1e6


class Client:
    """Repeats the same batch; an idempotent client gives each the next sequence."""

    def __init__(self, bench: request.Bench, in_flight: int, *, idempotent: bool) -> None:
        self._bench = bench
        self._in_flight = in_flight
        self._idempotent = idempotent
        self._sequence = 0
        self._batch = request.a_batch(RECORDS, RECORD_BYTES, PRODUCER if idempotent else -1)
        self._frame = request.framed(request.produce(self._batch), request.PRODUCE_VERSION)
        self._at = self._frame.index(self._batch)

    def turn(self) -> float:
        """µs per batch of some bursts, which are built before the clock starts."""
        bursts = [b"".join(self._next() for _ in range(self._in_flight)) for _ in range(BURSTS)]
        began = process_time()
        for burst in bursts:
            self._bench.say(burst)
        return (process_time() - began) / BURSTS / self._in_flight * 1e6

    def _next(self) -> bytes:
        """Batches in fresh memory, with or without sequences: recently read memory would be faster to read."""
        batch = bytearray(self._batch)
        if self._idempotent:
            struct.pack_into(">i", batch, SEQUENCE, self._sequence)
            struct.pack_into(">I", batch, CRC, crc32c(bytes(batch[COVERED:])))
            self._sequence += RECORDS
        return self._frame[: self._at] + batch + self._frame[self._at + len(batch) :]


async def in_a_broker(directory: str) -> None:
    config = request.settings(directory)
    broker = Broker(config, node_of(config), disk=OsDisk(), clock=SystemClock(), random=Random(1))
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        await broker.create_missing_topics({"bench": 1})
        for in_flight in IN_FLIGHT:
            show(broker, in_flight)
        broker.stop()


def show(broker: Broker, in_flight: int) -> None:
    log = broker.partitions.get("bench", 0).log
    log.producers.truncate_fully_and_start_at(log.log_end_offset)  # the next client begins at offset 0 again
    plain, idempotent = (Client(request.Bench(broker, TURNS), in_flight, idempotent=one) for one in (False, True))
    before = log.log_end_offset
    turns = []
    for number in range(TURNS):
        took = {one: one.turn() for one in ((plain, idempotent) if number % 2 == 0 else (idempotent, plain))}
        turns.append((took[plain], took[idempotent]))
    assert log.log_end_offset - before == 2 * TURNS * BURSTS * in_flight * RECORDS, "a batch was refused"
    best = [min(some) for some in zip(*turns, strict=True)]
    ratio = median(one / other for other, one in turns)
    print(
        f"{in_flight} of 16 KB at once: plain {best[0]:.2f} µs, idempotent {best[1]:.2f} µs at best; "
        f"ratio {best[1] / best[0]:.2f}, median of {TURNS} turns {ratio:.2f}"
    )


def main() -> None:
    for name, transactional in (("idempotent", False), ("transactional", True)):
        check, apply = min(measure(batches(transactional=transactional)) for _ in range(ROUNDS))
        print(f"{name:14} check {check:.2f} µs   apply {apply:.2f} µs   together {check + apply:.2f} µs per batch")
    where = request.FAST_FOLDER if Path(request.FAST_FOLDER).is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as directory:
        trio.run(in_a_broker, directory)


if __name__ == "__main__":
    main()
