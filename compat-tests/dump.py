"""What Kafka's DumpLogSegments prints, read back: files, batches, records, entries of indexes and snapshots.

    Dumping /…/00000000000000000000.log
    Log starting offset: 0
    baseOffset: 0 lastOffset: 1 count: 2 … isvalid: true              a batch
    | offset: 0 CreateTime: 170… keySize: -1 valueSize: 2 …           its records, when asked for
    Dumping /…/00000000000000000000.timeindex
    timestamp: 1700000000001 offset: 2                                an entry

The tool finds faults in files and says so in lines of many forms. So nothing is searched for: each line that is not
one of the known harmless forms is a complaint. (A few faults make the tool itself fail: that is OracleFailed.) Offsets
that do not follow one another are gaps, not complaints: a compacted log has them. The tool lists them at the end.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

_FILE = re.compile(r"Dumping (?P<path>.+)")
_GAPS = re.compile(r"Non-consecutive offsets in (?P<path>.+)")
_GAP = re.compile(r"  (?P<before>-?\d+) is followed by (?P<after>\d+)")
_HARMLESS = re.compile(r"Log starting offset: \d+|\S+ is empty\.|\S+ passed sanity check\.|")
_ENTRY = re.compile(r"(?:\w+: \S+ ?)+")
_PAIR = re.compile(r"(\w+): (\S+)")
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<timestamp_type>\w+): (?P<timestamp>-?\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<headers>.*?)\] ?(?P<rest>.*)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """One record. Keys and values are text, for the tool prints no bytes; None also when they were not printed."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int
    sequence: int
    header_keys: tuple[str, ...]
    key: str | None
    value: str | None
    marker: str | None  # COMMIT or ABORT


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str  # CreateTime or LogAppendTime
    max_timestamp: int
    size: int
    magic: int
    codec: str
    crc: int
    is_valid: bool
    records: list[DumpedRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedFile:
    """One file: batches of a segment, or the entries of another kind of file, as names and values."""

    path: Path
    batches: list[DumpedBatch] = field(default_factory=list)
    entries: list[dict[str, str]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)  # the record before, the record after
    complaints: list[str] = field(default_factory=list)


def parse_dump(text: str) -> list[DumpedFile]:
    """All files of an output, in its order."""
    files: list[DumpedFile] = []
    with_gaps = ""
    for line in text.splitlines():
        if found := _FILE.fullmatch(line):
            files.append(DumpedFile(path=Path(found["path"])))
        elif not files:
            raise ValueError(f"before the first file the tool said {line!r}")
        elif line.startswith("baseOffset: "):
            files[-1].batches.append(_batch(dict(_PAIR.findall(line))))
        elif found := _RECORD.fullmatch(line):
            files[-1].batches[-1].records.append(_record(found))
        elif found := _GAPS.fullmatch(line):
            with_gaps = found["path"]
        elif found := _GAP.fullmatch(line):
            if found["before"] != "-1":  # the first record of a file follows nothing
                [file] = [file for file in files if str(file.path) == with_gaps]
                file.gaps.append((int(found["before"]), int(found["after"])))
        elif _HARMLESS.fullmatch(line):
            pass
        elif _ENTRY.fullmatch(line):
            files[-1].entries.append(dict(_PAIR.findall(line)))
        else:
            files[-1].complaints.append(line)
    return files


def complaints(files: list[DumpedFile]) -> list[str]:
    """Everything that Kafka finds wrong with these files; empty when it is content with all of them."""
    found = []
    for file in files:
        found += [f"{file.path.name}: {line}" for line in file.complaints]
        found += [
            f"{file.path.name}: the batch at {batch.position} is not valid"
            for batch in file.batches
            if not batch.is_valid
        ]
    return found


def optional_long(text: str) -> int | None:
    """`OptionalLong[5]` and `OptionalLong.empty`, as Java prints them."""
    return None if text == "OptionalLong.empty" else int(text.removeprefix("OptionalLong[").removesuffix("]"))


def _batch(said: dict[str, str]) -> DumpedBatch:
    timestamp_type = "LogAppendTime" if "LogAppendTime" in said else "CreateTime"
    return DumpedBatch(
        base_offset=int(said["baseOffset"]),
        last_offset=int(said["lastOffset"]),
        count=int(said["count"]),
        base_sequence=int(said["baseSequence"]),
        last_sequence=int(said["lastSequence"]),
        producer_id=int(said["producerId"]),
        producer_epoch=int(said["producerEpoch"]),
        leader_epoch=int(said["partitionLeaderEpoch"]),
        is_transactional=said["isTransactional"] == "true",
        is_control=said["isControl"] == "true",
        delete_horizon_ms=optional_long(said["deleteHorizonMs"]),
        position=int(said["position"]),
        timestamp_type=timestamp_type,
        max_timestamp=int(said[timestamp_type]),
        size=int(said["size"]),
        magic=int(said["magic"]),
        codec=said["compresscodec"],
        crc=int(said["crc"]),
        is_valid=said["isvalid"] == "true",
    )


def _record(found: re.Match[str]) -> DumpedRecord:
    """The printed sizes cut key from value, so that neither may hold what looks like the other's name."""
    key_size, value_size, rest = int(found["key_size"]), int(found["value_size"]), found["rest"].encode()
    key = value = marker = None
    if rest.startswith(b"endTxnMarker: "):
        marker = rest.split()[1].decode()
    else:
        if rest.startswith(b"key: "):
            key, rest = rest[5 : 5 + key_size].decode(), rest[5 + key_size :].lstrip()
        if rest.startswith(b"payload: "):
            value, rest = rest[9 : 9 + value_size].decode(), rest[9 + value_size :]
        if rest.strip():
            raise ValueError(f"a record has more than was expected: {found[0]!r}")
    return DumpedRecord(
        offset=int(found["offset"]),
        timestamp=int(found["timestamp"]),
        key_size=key_size,
        value_size=value_size,
        sequence=int(found["sequence"]),
        header_keys=tuple(found["headers"].split(",")) if found["headers"] else (),
        key=key,
        value=value,
        marker=marker,
    )
