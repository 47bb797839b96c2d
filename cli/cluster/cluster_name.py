"""`--name` of `trioka cluster`: one user may have several local clusters, each in a folder of its own."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

import click

from ..client.contexts import state_folder

R = TypeVar("R")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def local_folder(name: str | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of this user's local cluster with that name, or without a name."""
    folder = state_folder(environment)
    return folder / "cluster" if name is None else folder / "clusters" / name


def local_folders(environment: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """The folders of all local clusters of this user."""
    yield local_folder(None, environment)
    named = state_folder(environment) / "clusters"
    if named.is_dir():
        yield from sorted(named.iterdir())


def name_flag(folder: Path) -> str:
    """The flag that names the cluster in this folder, after a blank; nothing for the cluster without a name."""
    return "" if folder.parent.name != "clusters" else f" --name {folder.name}"


def with_cluster_name(function: Callable[..., R]) -> Callable[..., R]:
    """Adds `--name`, as `cluster_name`."""

    def checked(ctx: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
        if name is not None and NAME.fullmatch(name) is None:
            raise click.BadParameter("a name has letters, digits, '.', '_' and '-', at most 63.")
        return name

    return click.option(
        "--name", "cluster_name", metavar="NAME", callback=checked, help="a local cluster by its name, as in up --name"
    )(function)
