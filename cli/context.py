"""`trioka context`: names for clusters, and the default among them."""

import os
from typing import Final

import click

from .client.contexts import Context, Contexts, load_contexts, save_contexts
from .client.settings import parse_servers
from .command_group import group
from .options import with_output
from .terminal.failure import Exit, Failure, did_you_mean
from .terminal.output import Column, show, write_stderr, write_stdout

COLUMNS: Final = (
    Column("CURRENT", "current"),
    Column("NAME", "name"),
    Column("BOOTSTRAP-SERVER", "bootstrap_server"),
    Column("COMMAND-CONFIG", "command_config"),
)

context = group("context", "Names for clusters.", ls="list", rm="remove", add="set", delete="remove")


@context.command("list")
@with_output
def list_contexts(output: str) -> None:
    """All of them; the one in use has a star."""
    contexts = load_contexts()
    rows = [
        {"current": "*" if name == contexts.current else "", "name": name, **each._asdict()}
        for name, each in sorted(contexts.by_name.items())
    ]
    show(rows, COLUMNS, output)


@context.command("set")
@click.argument("name")
@click.option("--bootstrap-server", "-b", required=True, metavar="HOST:PORT")
@click.option("--command-config", metavar="FILE", help="client.properties with the login")
def set_context(name: str, bootstrap_server: str, command_config: str | None) -> None:
    """Gives a cluster a name. The first one is in use at once."""
    parse_servers(bootstrap_server)
    contexts = load_contexts()
    if command_config is not None:
        from .config_reference import read_client_properties

        command_config = os.path.abspath(command_config)
        read_client_properties(command_config)
    by_name = {**contexts.by_name, name: Context(bootstrap_server, command_config)}
    save_contexts(Contexts(contexts.current or name, by_name))
    write_stderr(f"context '{name}' is {bootstrap_server}")


@context.command("use")
@click.argument("name")
def use(name: str) -> None:
    """Takes this one when none is named."""
    contexts = load_contexts()
    _known(contexts, name)
    save_contexts(contexts._replace(current=name))


@context.command("show")
def show_context() -> None:
    """The one in use."""
    contexts = load_contexts()
    if contexts.current is None:
        raise Failure("no context is in use", exit_code=Exit.NOT_FOUND, hints=["see: trioka context set --help"])
    write_stdout(contexts.current)


@context.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Forgets a name."""
    contexts = load_contexts()
    _known(contexts, name)
    left = {other: each for other, each in contexts.by_name.items() if other != name}
    save_contexts(Contexts(None if contexts.current == name else contexts.current, left))


def _known(contexts: Contexts, name: str) -> None:
    if name not in contexts.by_name:
        hints = [*did_you_mean(name, contexts.by_name), "see: trioka context list"]
        raise Failure(f"there is no context '{name}'", exit_code=Exit.NOT_FOUND, hints=hints)
