"""Names for clusters: `trioka context set prod --bootstrap-server kafka1:9092`, `trioka context use prod`.

They are stored in one JSON file in the user's configuration folder. The file holds addresses and file names and no
password: a login stays in the client.properties that a context names.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..terminal.failure import Exit, Failure

MAX_FILE_BYTES: Final = 1 << 20


class Context(NamedTuple):
    bootstrap_server: str
    command_config: str | None = None


class Contexts(NamedTuple):
    current: str | None
    by_name: dict[str, Context]


def configuration_folder(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "trioka"


def state_folder(environment: Mapping[str, str]) -> Path:
    """The folder in which a command keeps state for a later one, such as the entries of `groups undo`."""
    return Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "trioka"


def load_contexts(environment: Mapping[str, str] = os.environ) -> Contexts:
    path = configuration_folder(environment) / "contexts.json"
    try:
        with path.open("rb") as file:
            result: dict[str, Any] = json.loads(file.read(MAX_FILE_BYTES))
        return Contexts(result["current"], {name: Context(**fields) for name, fields in result["contexts"].items()})
    except FileNotFoundError:
        return Contexts(None, {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(f"{path} cannot be read: {error}", hints=["delete it and set the contexts again"]) from None


def save_contexts(contexts: Contexts, environment: Mapping[str, str] = os.environ) -> None:
    folder = configuration_folder(environment)
    named = {name: context._asdict() for name, context in contexts.by_name.items()}
    write_whole(folder / "contexts.json", {"current": contexts.current, "contexts": named})


def write_whole(path: Path, content: object) -> None:
    """Write the file atomically, readable by its owner only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.touch(mode=0o600)
        beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}", exit_code=Exit.FAILED) from None
