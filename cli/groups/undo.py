"""The committed offsets of a group before a command changed them, so that `trioka groups undo` can restore them.

They are kept in the user's state folder on this machine, one file per group and cluster, with the newest `KEPT`
changes. A null offset means that none was committed.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ..client.cluster_client import TopicPartition
from ..client.contexts import state_folder, write_whole
from ..client.offsets import CommittedOffset
from ..terminal.failure import Failure

KEPT: Final = 10
MAX_FILE_BYTES: Final = 64 << 20


class UndoEntry(NamedTuple):
    """The offsets before the change `why`, made `at` (milliseconds since 1970). None: nothing was committed."""

    at: int
    why: str
    offsets: dict[TopicPartition, CommittedOffset | None]


def _file(cluster_id: str, group: str, environment: Mapping[str, str]) -> Path:
    # File systems limit names to 255 bytes; a longer name keeps its end, which distinguishes it.
    return state_folder(environment) / "undo" / quote(cluster_id, safe="") / f"{quote(group, safe='')[-200:]}.json"


def load(cluster_id: str, group: str, environment: Mapping[str, str] = os.environ) -> list[UndoEntry]:
    """The entries, the oldest first."""
    path = _file(cluster_id, group, environment)
    try:
        with path.open("rb") as file:
            result: list[dict[str, Any]] = json.loads(file.read(MAX_FILE_BYTES))
        return [
            UndoEntry(
                each["at"],
                each["why"],
                {
                    TopicPartition(topic, partition): None if value is None else CommittedOffset(*value)
                    for topic, partition, value in each["offsets"]
                },
            )
            for each in result
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path} cannot be read: {error}") from None


def save(cluster_id: str, group: str, pasts: list[UndoEntry], environment: Mapping[str, str] = os.environ) -> None:
    content = [
        {
            "at": past.at,
            "why": past.why,
            "offsets": [[*place, None if value is None else list(value)] for place, value in past.offsets.items()],
        }
        for past in pasts[-KEPT:]
    ]
    write_whole(_file(cluster_id, group, environment), content)


def remember(cluster_id: str, group: str, past: UndoEntry, environment: Mapping[str, str] = os.environ) -> None:
    save(cluster_id, group, [*load(cluster_id, group, environment), past], environment)
