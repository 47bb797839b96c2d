"""The `trioka` command: the list of its subcommands, each loaded when it is used, and its exit codes.

The list holds one help sentence per command, so that `trioka --help` loads none of them.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, NamedTuple

import click

from trioka import __version__

from .command_group import Group
from .node.flags import START_COMMANDS
from .terminal import output
from .terminal.failure import Exit, Failure


class LazyCommand(NamedTuple):
    """The module and name of a command, and the optional extra that installs what it needs."""

    module: str
    name: str
    summary: str
    extra: str | None = None


COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "dev": LazyCommand("trioka.cli.node.command", "dev", START_COMMANDS["dev"].summary),
    "serve": LazyCommand("trioka.cli.node.command", "serve", START_COMMANDS["serve"].summary),
    "run": LazyCommand("trioka.cli.node.run", "run", "a throw-away broker around one command"),
    "cluster": LazyCommand("trioka.cli.cluster.command", "cluster", "a cluster on this machine, and the state of any"),
    "topics": LazyCommand("trioka.cli.topics.command", "topics", "list, describe, create, alter, trim, delete"),
    "groups": LazyCommand("trioka.cli.groups.command", "groups", "list, describe, reset-offsets, undo, delete"),
    "lag": LazyCommand("trioka.cli.groups.lag", "lag", "how far groups are behind, in records and in time"),
    "produce": LazyCommand("trioka.cli.topics.produce", "produce", "lines of standard input become records"),
    "consume": LazyCommand("trioka.cli.topics.consume", "consume", "records become lines of standard output"),
    "config": LazyCommand("trioka.cli.configs", "config", "show, get, set, unset, lint"),
    "doctor": LazyCommand("trioka.cli.cluster.doctor", "doctor", "is the cluster reachable and well?"),
    "user": LazyCommand("trioka.cli.security.user", "user", "users that log in by SCRAM: list, create, passwd, delete"),
    "acl": LazyCommand("trioka.cli.security.acl", "acl", "access rules: list, add, remove, can"),
    "quota": LazyCommand("trioka.cli.security.quota", "quota", "quotas of users, client ids, addresses"),
    "token": LazyCommand("trioka.cli.security.token", "token", "delegation tokens: create, renew, expire, list"),
    "storage": LazyCommand("trioka.cli.node.storage", "storage", "format a node's directories, and look at them"),
    "segments": LazyCommand("trioka.cli.node.segments", "segments", "list, dump and verify log files"),
    "archive": LazyCommand(
        "trioka.cli.archive.command", "archive", "tiered topics, read from the object store", "archive"
    ),
    "table": LazyCommand("trioka.cli.table.command", "table", "tiered topics as Iceberg tables", "table"),
    "tier": LazyCommand(
        "trioka.cli.tier.command", "tier", "tiered topics: status, ls, verify, sweep, lifecycle, restore", "archive"
    ),
    "bench": LazyCommand("trioka.cli.bench", "bench", "how fast is this broker, from here?"),
    "explain": LazyCommand("trioka.cli.explain", "explain", "what an error code or a config key means"),
    "context": LazyCommand("trioka.cli.context", "context", "names for clusters"),
    "completion": LazyCommand("trioka.cli.terminal.completion", "completion", "for bash, zsh and fish"),
    "schemas": LazyCommand("trioka.cli.schemas.command", "schemas", "list, show, add, check, delete, in a registry"),
    "gateway": LazyCommand("trioka.cli.gateway", "gateway", "gRPC and HTTP in front of any Kafka", "gateway"),
    "spark": LazyCommand("trioka.pipeline.spark_commands", "spark", "Spark with Kafka, set up", "spark"),
    "pipeline": LazyCommand(
        "trioka.pipeline.pipeline_commands", "pipeline", "pipelines of Spark, run and watched", "spark"
    ),
}
ALIASES: Final = {
    "topic": "topics",
    "group": "groups",
    "segment": "segments",
    "configs": "config",
    "contexts": "context",
    "users": "user",
    "acls": "acl",
    "quotas": "quota",
    "tokens": "token",
    "schema": "schemas",
    "pipelines": "pipeline",
}


class Root(Group):
    aliases = ALIASES

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self.aliases.get(cmd_name, cmd_name)
        return load(name, COMMANDS[name]) if name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in COMMANDS.items()])


def load(name: str, lazy: LazyCommand) -> click.Command:
    try:
        command = getattr(import_module(lazy.module), lazy.name)
    except ImportError as error:
        if lazy.extra is None:
            raise
        what = f"trioka {name} needs '{error.name}', which is not installed"
        raise Failure(what, hints=[f"install it: pip install 'trioka[{lazy.extra}]'"]) from None
    assert isinstance(command, click.Command)
    return command


root = Root("trioka", help="A Kafka broker in Python on trio, and commands for any Kafka.", no_args_is_help=False)
root.invoke_without_command = True
root.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=lambda ctx, _, value: _print_version(ctx) if value else None,
        help="print the version, Python's and the platform",
    )
)


def _print_version(ctx: click.Context) -> None:
    system = os.uname()
    python = sys.version.split()[0]  # the module platform takes longer to load than all else here
    output.write_stdout(f"trioka {__version__}, Python {python}, {system.sysname} {system.release} {system.machine}")
    ctx.exit()


@click.pass_context
def _help(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        output.write_stdout(ctx.get_help())


root.callback = _help


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit code."""
    try:
        ended = root.main(list(arguments), prog_name="trioka", standalone_mode=False)
        output.flush()
        return ended if isinstance(ended, int) else Exit.OK
    except click.UsageError as error:
        return _explain(_usage(error))
    except click.ClickException as error:
        return _explain(Failure(error.format_message().removesuffix("."), exit_code=error.exit_code))
    except Failure as failure:
        return _explain(failure)
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        output.discard_stdout()
        return Exit.OK


def _usage(error: click.UsageError) -> Failure:
    where = error.ctx.command_path if error.ctx is not None else "trioka"
    message = error.format_message()
    return Failure(
        message[0].lower() + message[1:].removesuffix("."), exit_code=Exit.USAGE, hints=[f"see: {where} --help"]
    )


def _explain(failure: Failure) -> int:
    output.write_stderr(str(failure))
    return failure.exit_code
