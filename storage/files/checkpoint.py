r"""The text files beside the segments: read whole or refused, written whole or not at all.

`layout.py` draws each format. Two rules hold for all of them (S3):

*Written by `Disk.replace`*: a new file, synced, renamed over the old one, the directory synced. After a crash there is
the old text or the new one.

*Read to the last character.* Kafka reads `orders 0 1` where `orders 0 17\n` was torn, and takes a file that ends after
its version line for an empty one. This module requires every line end, as many entries as the count, plain decimal
numbers and no partition twice, and raises `CorruptFile` otherwise, naming path and line. The one exception is a file of
no bytes at all: Kafka leaves that when it opened a checkpoint and never wrote it. It reads as no entries.

The caller decides how to handle `CorruptFile`: offsets and epochs can be rebuilt from the log, an unreadable
clean-shutdown marker means an unclean stop, but without `meta.properties` a node must not start.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from trioka.protocol.errors import ProtocolError
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.primitives import NULL_UUID, uuid_from_text, uuid_text

from .disk import Disk
from .layout import MAX_OFFSET, CorruptFile, TopicPartition

# A line of an offset checkpoint is at most 281 bytes (249 + 10 + 19 and three separators), so 238,000 partitions
# always fit, and a million with names of common length.
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_MARKER_BYTES: Final = 4096

CHECKPOINT_VERSION: Final = "0"

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")


def _read(disk: Disk, path: str, limit: int = MAX_FILE_BYTES) -> str:
    size = disk.size(path)
    if size > limit:
        raise CorruptFile(path, f"{size} bytes; no such file has more than {limit}")
    try:
        return disk.read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFile(path, f"byte {error.start} is not UTF-8") from None


def _number(path: str, line: int, text: str, limit: int, what: str) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > limit:
        raise CorruptFile(path, f"{text!r} is not {what}", line=line)
    return int(text)


# Version line, count line, entries -----------------------------------------------------------------------------------


def _read_entries(disk: Disk, path: str, parse: Callable[[int, list[str]], None]) -> None:
    """Passes each entry, with its line number, to `parse`, after the header and the count have been checked."""
    text = _read(disk, path)
    if not text:
        return
    lines = text.split("\n")
    if lines.pop():
        raise CorruptFile(path, "the last line does not end", line=len(lines) + 1)
    if lines[0] != CHECKPOINT_VERSION:
        raise CorruptFile(path, f"version {lines[0]!r}, not {CHECKPOINT_VERSION!r}", line=1)
    if len(lines) < 2:
        raise CorruptFile(path, "ends before the number of entries", line=2)
    count = _number(path, 2, lines[1], MAX_FILE_BYTES, "a number of entries")
    if count != len(lines) - 2:
        raise CorruptFile(path, f"announces {count} entries and holds {len(lines) - 2}", line=2)
    for number, line in enumerate(lines[2:], start=3):
        parse(number, line.split(" "))


def _write_entries(disk: Disk, path: str, entries: list[str]) -> None:
    lines = [CHECKPOINT_VERSION, str(len(entries)), *entries]
    disk.replace(path, ("\n".join(lines) + "\n").encode("utf-8"))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """One of the four offset checkpoints of a log directory. A missing file has no entries."""
    if not disk.exists(path):
        return {}
    offsets: dict[TopicPartition, int] = {}

    def parse(line: int, words: list[str]) -> None:
        if len(words) != 3 or not words[0]:
            raise CorruptFile(path, "is not a topic, a partition and an offset", line=line)
        key = TopicPartition(words[0], _number(path, line, words[1], 2**31 - 1, "a partition"))
        if key in offsets:
            raise CorruptFile(path, f"{key} occurs twice", line=line)
        offsets[key] = _number(path, line, words[2], MAX_OFFSET, "an offset")

    _read_entries(disk, path, parse)
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """In the order of the names, so that equal offsets make equal files."""
    for key, offset in offsets.items():
        assert 0 <= offset <= MAX_OFFSET, f"{key}: offset {offset}"
    _write_entries(disk, path, [f"{key.topic} {key.partition} {offsets[key]}" for key in sorted(offsets)])


class EpochEntry(NamedTuple):
    """From `start_offset` on, until the next entry's, records were appended by the leader of `epoch`."""

    epoch: int
    start_offset: int


def read_epochs(disk: Disk, path: str) -> list[EpochEntry]:
    """`leader-epoch-checkpoint`. A missing file has no entries; epochs and offsets that do not rise are damage."""
    if not disk.exists(path):
        return []
    entries: list[EpochEntry] = []

    def parse(line: int, words: list[str]) -> None:
        if len(words) != 2:
            raise CorruptFile(path, "is not an epoch and an offset", line=line)
        entry = EpochEntry(
            _number(path, line, words[0], 2**31 - 1, "an epoch"), _number(path, line, words[1], MAX_OFFSET, "an offset")
        )
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset <= entries[-1].start_offset):
            raise CorruptFile(path, f"{entry} does not follow {entries[-1]}", line=line)
        entries.append(entry)

    _read_entries(disk, path, parse)
    return entries


def write_epochs(disk: Disk, path: str, entries: Iterable[EpochEntry]) -> None:
    _write_entries(disk, path, [f"{entry.epoch} {entry.start_offset}" for entry in entries])


# partition.metadata --------------------------------------------------------------------------------------------------

_PARTITION_METADATA: Final = re.compile(r"version: ([0-9]{1,9})\ntopic_id: (\S+)\n?")


def read_topic_id(disk: Disk, path: str) -> bytes:
    """The topic's id from `partition.metadata`. A later version may add fields, but must contain it (as in Kafka)."""
    text = _read(disk, path)
    match = _PARTITION_METADATA.match(text)
    if match is None or (match.end() != len(text) and match[1] == "0"):
        raise CorruptFile(path, "is not a version and a topic id")
    try:
        topic_id = uuid_from_text(match[2])
    except ProtocolError as error:
        raise CorruptFile(path, str(error), line=2) from None
    if topic_id == NULL_UUID:
        raise CorruptFile(path, "no topic has the id of all zeros", line=2)
    return topic_id


def write_topic_id(disk: Disk, path: str, topic_id: bytes) -> None:
    assert topic_id != NULL_UUID
    disk.replace(path, f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode())


# The clean-shutdown marker -------------------------------------------------------------------------------------------

UNKNOWN_BROKER_EPOCH: Final = -1


def read_clean_marker(disk: Disk, path: str) -> int | None:
    """The broker epoch of the run that stopped cleanly; None if there is no marker: the last stop was not clean.

    A damaged marker raises, and the caller recovers as after an unclean stop: an unnecessary scan costs minutes, a
    missing scan costs records. (Kafka checks only that the file exists, and older versions left it empty; a node
    that comes from such a version scans once.)
    """
    if not disk.exists(path):
        return None
    try:
        content = json.loads(_read(disk, path, MAX_MARKER_BYTES))
    except (ValueError, RecursionError) as error:
        raise CorruptFile(path, f"is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise CorruptFile(path, "is not a JSON object")
    version, epoch = content.get("version"), content.get("brokerEpoch")
    if type(version) is not int or version < 0:
        raise CorruptFile(path, f"version {version!r} is not a number from 0 up")
    if type(epoch) is not int or not UNKNOWN_BROKER_EPOCH <= epoch <= MAX_OFFSET:
        raise CorruptFile(path, f"brokerEpoch {epoch!r} is not a broker epoch")
    return epoch


def write_clean_marker(disk: Disk, path: str, broker_epoch: int) -> None:
    """The last thing that a clean stop writes (S2)."""
    disk.replace(path, f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode())


# meta.properties -----------------------------------------------------------------------------------------------------


@frozen
class MetaProperties:
    """The owner of a log directory. `others` are unknown keys, kept as they were."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None = None
    others: tuple[tuple[str, str], ...] = ()


_KNOWN_KEYS: Final = ("version", "cluster.id", "node.id", "directory.id")


def read_meta_properties(disk: Disk, path: str) -> MetaProperties:
    """Version 1 only: version 0 was written by brokers that had ZooKeeper, and Kafka 4 has none either."""
    properties = parse_properties(path, _read(disk, path))
    version = properties.get("version")
    if version != "1":
        raise CorruptFile(path, "has no version" if version is None else f"version {version!r}, not '1'")
    if not properties.get("cluster.id"):
        raise CorruptFile(path, "has no cluster.id")
    node_id = properties.get("node.id", "")
    if _NUMBER.fullmatch(node_id) is None or int(node_id) > 2**31 - 1:
        raise CorruptFile(path, f"node.id {node_id!r} is not a number from 0 to 2147483647")
    directory_id = None
    if "directory.id" in properties:
        try:
            directory_id = uuid_from_text(properties["directory.id"])
        except ProtocolError as error:
            raise CorruptFile(path, f"directory.id: {error}") from None
    return MetaProperties(
        cluster_id=properties["cluster.id"],
        node_id=int(node_id),
        directory_id=directory_id,
        others=tuple((key, value) for key, value in properties.items() if key not in _KNOWN_KEYS),
    )


def write_meta_properties(disk: Disk, path: str, meta: MetaProperties) -> None:
    # Required keys come last, so that a file that lost its end is never accepted as complete.
    properties = dict(meta.others)
    if meta.directory_id is not None:
        properties["directory.id"] = uuid_text(meta.directory_id)
    properties |= {"node.id": str(meta.node_id), "cluster.id": meta.cluster_id, "version": "1"}
    lines = [f"{_escape(key, in_key=True)}={_escape(value)}\n" for key, value in properties.items()]
    # Kafka writes the date into the second line; this pure function has no clock, and no reader uses the date.
    disk.replace(path, ("#\n" + "".join(lines)).encode("ascii"))


_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES: Final = {character: name for name, character in _ESCAPES.items()}
_BLANK: Final = " \t\f"


def parse_properties(path: str, text: str) -> dict[str, str]:
    """java.util.Properties: `key=value`, `key:value`, `key value`; comments; escapes; a backslash joins lines."""
    if text and not text.endswith("\n"):
        raise CorruptFile(path, "the last line does not end", line=text.count("\n") + 1)
    properties: dict[str, str] = {}
    lines = iter(enumerate(re.split(r"\r\n|\r|\n", text), start=1))
    for number, raw in lines:
        line = raw.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(_BLANK)
        end = re.match(r"(?:\\.|[^\\=: \t\f])*", line, re.DOTALL)
        assert end is not None, "the pattern matches the empty string too"
        value = re.sub(r"^[ \t\f]*(?:[=:][ \t\f]*)?", "", line[end.end() :])
        key = _unescape(path, number, end[0])
        if key in properties:
            raise CorruptFile(path, f"{key} occurs twice", line=number)
        properties[key] = _unescape(path, number, value)
    return properties


def _unescape(path: str, line: int, text: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise CorruptFile(path, "\\u without four hex digits", line=line)
        return _ESCAPES.get(match[2], match[2])

    plain = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", character, text, flags=re.DOTALL)
    try:
        # Java escapes UTF-16 units, so a character beyond the first plane becomes two.
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise CorruptFile(path, "half a surrogate pair", line=line) from None


def _escape(text: str, *, in_key: bool = False) -> str:
    """As Java's `store` does, but ASCII only: Kafka writes UTF-8 and reads Latin-1, and `\\u00e9` is both."""
    out = []
    for index, character in enumerate(text):
        if character in _NAMES:
            out.append("\\" + _NAMES[character])
        elif character in "\\=:#!" or (character == " " and (in_key or index == 0)):
            out.append("\\" + character)
        elif " " <= character <= "~":
            out.append(character)
        else:
            units = character.encode("utf-16-be")
            out.extend(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
    return "".join(out)
