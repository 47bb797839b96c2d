"""What the producer state adds to each idempotent batch: `python bench/producers.py`, in µs of CPU."""

from time import process_time

from trioka.protocol.batch import BatchHeader, build, read_header
from trioka.protocol.record import Record
from trioka.storage.memory_disk import MemoryDisk
from trioka.storage.producer_snapshot import SnapshotFiles
from trioka.storage.producers import ProducerState

PRODUCERS = 100
BATCHES = 200_000
ROUNDS = 5


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


def main() -> None:
    for name, transactional in (("idempotent", False), ("transactional", True)):
        check, apply = min(measure(batches(transactional=transactional)) for _ in range(ROUNDS))
        print(f"{name:14} check {check:.2f} µs   apply {apply:.2f} µs   together {check + apply:.2f} µs per batch")


if __name__ == "__main__":
    main()
