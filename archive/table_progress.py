"""Which offsets an Iceberg table has: read from its snapshots, and checked before anything is appended. Pure.

Each snapshot that a sync commits has the properties

    trioka.topic         orders
    trioka.topic.id      MWJ6FHTfRYy67jzwZdeqSQ
    trioka.offsets       {"0": 1200, "1": 1180}        the next offset of each partition

The newest snapshot of the table's own line that has them counts, so a table that was rolled back is filled again from
there. Snapshots of maintenance have none; where the one before them has expired, the table's properties of the same
names count, which are written in the same commit.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from trioka.protocol.lazy_dataclass import frozen

from .errors import ArchiveError

TOPIC: Final = "trioka.topic"
TOPIC_ID: Final = "trioka.topic.id"
OFFSETS: Final = "trioka.offsets"
MAX_OFFSET: Final = (1 << 63) - 1


class ForeignTable(ArchiveError):
    """The table holds something else than this topic."""


class ConcurrentSync(ArchiveError):
    """Another sync has written to the table."""


@frozen
class TableProgress:
    topic: str
    topic_id: str
    offsets: Mapping[int, int]

    def properties(self) -> dict[str, str]:
        offsets = {str(partition): self.offsets[partition] for partition in sorted(self.offsets)}
        return {TOPIC: self.topic, TOPIC_ID: self.topic_id, OFFSETS: json.dumps(offsets)}


def read_progress(
    table: str, snapshots: Iterable[Mapping[str, str]], properties: Mapping[str, str], *, topic: str, topic_id: str
) -> TableProgress:
    """The progress of a table, from the properties of its snapshots, the newest first, or else its own."""
    is_empty = True
    for found in snapshots:
        is_empty = False
        if OFFSETS in found:
            return _parsed(table, found, topic, topic_id)
    if is_empty and OFFSETS not in properties:
        return TableProgress(topic=topic, topic_id=topic_id, offsets={})
    if OFFSETS in properties and not is_empty:
        return _parsed(table, properties, topic, topic_id)
    if is_empty:  # nothing was committed, or all of it was rolled back
        _parsed(table, properties, topic, topic_id)
        return TableProgress(topic=topic, topic_id=topic_id, offsets={})
    raise ForeignTable(f"the table {table} has rows, and none of its snapshots says which offsets they are")


def _parsed(table: str, found: Mapping[str, str], topic: str, topic_id: str) -> TableProgress:
    if (found.get(TOPIC), found.get(TOPIC_ID)) != (topic, topic_id):
        what = f"{found.get(TOPIC)} ({found.get(TOPIC_ID)})"
        raise ForeignTable(f"the table {table} holds the topic {what}, not {topic} ({topic_id})")
    try:
        offsets = {int(partition): offset for partition, offset in json.loads(found[OFFSETS]).items()}
    except (ValueError, AttributeError):
        offsets = {-1: -1}
    if not all(isinstance(each, int) and 0 <= each <= MAX_OFFSET for pair in offsets.items() for each in pair):
        raise ForeignTable(f"the table {table} has the property {OFFSETS}={found[OFFSETS]!r}, which is no offsets")
    return TableProgress(topic=topic, topic_id=topic_id, offsets=offsets)
