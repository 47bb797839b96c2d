"""A log of trioka as Kafka's clients would see it, in the format of programs/Consume.java; and writers for one."""

from collections.abc import Iterator
from typing import Any

from trioka.protocol.batch import BatchHeader, build, build_marker, check_crc, headers, records
from trioka.protocol.compression import Codec
from trioka.protocol.record import EndTxnMarker, Record
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.log import Log

Json = dict[str, Any]
FETCH_BYTES = 700  # a few batches at a time, so that a log is read in many steps


def batches_of(log: Log, upto: int | None = None) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Everything in a log from its start on, fetch by fetch."""
    offset = log.log_start_offset
    while (answer := log.read(offset, FETCH_BYTES, upto=upto)).records is not None:
        content = answer.records.read()
        for header in headers(content):
            assert check_crc(content, header)
            yield header, list(records(content, header))
        assert answer.next_offset > offset
        offset = answer.next_offset


def consumed(log: Log, isolation: str = "read_uncommitted") -> list[Json]:
    """The records as a consumer hands them out, by the rules that clients follow."""
    upto = log.last_stable_offset if isolation == "read_committed" else log.high_watermark
    aborted = log.aborted_transactions(log.log_start_offset, upto) if isolation == "read_committed" else []
    to_come = sorted(aborted, key=lambda transaction: transaction.first_offset)
    being_skipped: set[int] = set()
    found = []
    for header, batch in batches_of(log, upto):
        while to_come and to_come[0].first_offset <= header.last_offset:
            being_skipped.add(to_come.pop(0).producer_id)
        if header.is_control:
            being_skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in being_skipped):
            found += [described(header, record) for record in batch if record.offset >= log.log_start_offset]
    return found


def described(header: BatchHeader, record: Record) -> Json:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "leader_epoch": header.leader_epoch,
        "key": hex_of(record.key),
        "value": hex_of(record.value),
        "headers": [[name, hex_of(value)] for name, value in record.headers],
    }


def hex_of(content: bytes | None) -> str | None:
    return None if content is None else content.hex()


class Writer:
    """A producer, and its transactions' coordinator, for one log of trioka. It counts its own sequences."""

    def __init__(self, log: Log, *, producer_id: int, now_ms: int, codec: Codec = Codec.NONE) -> None:
        self.log = log
        self.producer_id = producer_id
        self.now_ms = now_ms
        self.codec = codec
        self.leader_epoch = max(log.epochs.latest_epoch, 0)
        self.sequence = 0

    def write(self, *contents: Record, transactional: bool = False) -> int:
        """One batch; the first offset that it got."""
        content = [record._replace(offset=number) for number, record in enumerate(contents)]
        batch = build(
            content,
            codec=self.codec,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
            transactional=transactional,
        )
        self.sequence += len(content)
        return self._append(batch, AppendOrigin.CLIENT)

    def end(self, *, commit: bool) -> int:
        marker = build_marker(
            EndTxnMarker(commit, 3),
            offset=0,
            timestamp=self.now_ms,
            leader_epoch=self.leader_epoch,
            producer_id=self.producer_id,
            producer_epoch=0,
        )
        return self._append(marker, AppendOrigin.COORDINATOR)

    def _append(self, batch: bytearray, origin: AppendOrigin) -> int:
        appended = self.log.append_as_leader(batch, leader_epoch=self.leader_epoch, now_ms=self.now_ms, origin=origin)
        self.log.advance_high_watermark(self.log.log_end_offset)
        return appended.first_offset
