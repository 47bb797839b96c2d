"""What a group had committed before a command changed it, so that `trioka groups undo` can bring it back.

It is kept on this machine, in the user's folder for state, one file for each group of each cluster; the newest
`KEPT` changes of each. An offset of null says that there was none.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ..client.cluster_client import TopicPartition
from ..client.contexts import state_folder, write_whole
from ..client.offsets import Committed
from ..terminal.failure import Failure

KEPT: Final = 10
MAX_FILE_BYTES: Final = 64 << 20


class Past(NamedTuple):
    """What was before `why` happened, `at` (in milliseconds since 1970). None: nothing was committed."""

    at: int
    why: str
    offsets: dict[TopicPartition, Committed | None]


def _file(cluster_id: str, group: str, environment: Mapping[str, str]) -> Path:
    # A name of 255 bytes is the most that file systems take; a longer group keeps its end, which tells it apart.
    return state_folder(environment) / "undo" / quote(cluster_id, safe="") / f"{quote(group, safe='')[-200:]}.json"


def load(cluster_id: str, group: str, environment: Mapping[str, str] = os.environ) -> list[Past]:
    """The oldest first."""
    path = _file(cluster_id, group, environment)
    try:
        with path.open("rb") as file:
            told: list[dict[str, Any]] = json.loads(file.read(MAX_FILE_BYTES))
        return [
            Past(
                each["at"],
                each["why"],
                {
                    TopicPartition(topic, partition): None if value is None else Committed(*value)
                    for topic, partition, value in each["offsets"]
                },
            )
            for each in told
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path} cannot be read: {error}") from None


def save(cluster_id: str, group: str, pasts: list[Past], environment: Mapping[str, str] = os.environ) -> None:
    content = [
        {
            "at": past.at,
            "why": past.why,
            "offsets": [[*place, None if value is None else list(value)] for place, value in past.offsets.items()],
        }
        for past in pasts[-KEPT:]
    ]
    write_whole(_file(cluster_id, group, environment), content)


def remember(cluster_id: str, group: str, past: Past, environment: Mapping[str, str] = os.environ) -> None:
    save(cluster_id, group, [*load(cluster_id, group, environment), past], environment)
