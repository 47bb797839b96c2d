"""Measures the CPU cost of record batches: the hot path of Produce, records one by one, and the codecs.

    python bench/batches.py

Every figure is the best of several rounds, in µs, for one batch of about 16 KB: 140 records of 100 bytes with a key.
Where kafka-python has the same operation, it is measured in the same run, and the ratio is the result.
"""

import sys
from collections import deque
from collections.abc import Callable
from timeit import repeat

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from trioka.protocol import batch, record_walk
from trioka.protocol.compression import Codec
from trioka.protocol.record import Record
from trioka.protocol.record_walk import IS_COMPILED, walk_in_python

ROUNDS = 15
RECORDS = [Record(n, 1_700_000_000_000 + 3 * n, b"key%04d" % n, b"%100d" % (n * 2654435761)) for n in range(140)]


def cost(work: Callable[[], object], number: int) -> float:
    return min(repeat(work, number=number, repeat=ROUNDS)) / number * 1e6


def drain(records: object) -> None:
    deque(records, maxlen=0)  # type: ignore[call-overload]


def kafka_python_build(codec: Codec) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, 1 << 20)
    for each in RECORDS:
        builder.append(each.offset, each.timestamp, each.key, each.value, [])
    built: bytearray = builder.build()
    return built


def report(what: str, ours: float, theirs: float | None = None) -> None:
    beside = f"{theirs:>12.2f}{theirs / ours:>9.1f}×" if theirs is not None else ""
    sys.stdout.write(f"{what:<44}{ours:>10.2f}{beside}\n")


def hot_path() -> None:
    wire = batch.build(RECORDS)
    header = batch.read_header(wire)

    def produce() -> None:
        found = batch.read_header(wire)
        batch.verify(wire, found)
        batch.assign_offset(wire, 0, 0, 0)

    def theirs() -> None:
        DefaultRecordBatch(wire).validate_crc()

    report("read_header", cost(lambda: batch.read_header(wire), 20_000))
    report(f"verify {len(wire)} bytes", cost(lambda: batch.verify(wire, header), 20_000))
    report("assign_offset", cost(lambda: batch.assign_offset(wire, 0, 0, 0), 20_000))
    report("all three, as a Produce does", cost(produce, 10_000), cost(theirs, 2_000))
    report("set_timestamp", cost(lambda: batch.set_timestamp(wire, header, 0), 10_000))


def one_by_one() -> None:
    wire = batch.build(RECORDS)
    header, count = batch.read_header(wire), len(RECORDS)
    data = batch.payload(wire, header)
    for name, walk in (
        ("compiled" if IS_COMPILED else "not compiled", record_walk.walk),
        ("in Python", walk_in_python),
    ):
        walked = cost(lambda walk=walk: walk(wire, batch.HEADER_SIZE, header.size, count, header.base_timestamp), 100)  # type: ignore[misc]
        report(f"walk, {name}", walked)
    report("spans, per record", cost(lambda: drain(batch.spans(data, header)), 50) / count)
    theirs = cost(lambda: drain(DefaultRecordBatch(wire)), 50) / count
    report("records, per record", cost(lambda: drain(batch.records(wire, header)), 50) / count, theirs)
    theirs = cost(lambda: kafka_python_build(Codec.NONE), 20) / count
    report("build, per record", cost(lambda: batch.build(RECORDS), 20) / count, theirs)


def codecs() -> None:
    for codec in list(Codec)[1:]:
        wire = batch.build(RECORDS, codec=codec)
        header = batch.read_header(wire)
        ours = cost(lambda wire=wire, header=header: batch.payload(wire, header), 200)  # type: ignore[misc]
        theirs = cost(lambda wire=wire: DefaultRecordBatch(wire)._maybe_uncompress(), 200)  # type: ignore[misc]
        report(f"decompress {header.size} bytes of {codec.name.lower()}", ours, theirs)


def main() -> None:
    sys.stdout.write(f"{'µs':<44}{'trioka':>10}{'kafka-python':>14}\n")
    hot_path()
    one_by_one()
    codecs()


if __name__ == "__main__":
    main()
