"""`trioka` itself: the list of its commands, each loaded when it is used, and how a run ends.

The list holds a sentence for each command, so that `trioka --help` loads none of them.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, NamedTuple

import click

from trioka import __version__

from .command_group import Group
from .node.flags import STARTERS
from .terminal import output
from .terminal.failure import Exit, Failure


class Lazy(NamedTuple):
    """Where a command is. With `extra`, in which optional part of the installation."""

    module: str
    name: str
    summary: str
    extra: str | None = None


COMMANDS: Final[Mapping[str, Lazy]] = {
    "dev": Lazy("trioka.cli.node.command", "dev", STARTERS["dev"].summary),
    "serve": Lazy("trioka.cli.node.command", "serve", STARTERS["serve"].summary),
    "run": Lazy("trioka.cli.node.run", "run", "a throw-away broker around one command"),
    "cluster": Lazy("trioka.cli.cluster.command", "cluster", "a cluster on this machine, and the state of any"),
    "topics": Lazy("trioka.cli.topics.command", "topics", "list, describe, create, alter, trim, delete"),
    "groups": Lazy("trioka.cli.groups.command", "groups", "list, describe, reset-offsets, undo, delete"),
    "lag": Lazy("trioka.cli.groups.lag", "lag", "how far groups are behind, in records and in time"),
    "produce": Lazy("trioka.cli.topics.produce", "produce", "lines of standard input become records"),
    "consume": Lazy("trioka.cli.topics.consume", "consume", "records become lines of standard output"),
    "config": Lazy("trioka.cli.configs", "config", "show, get, set, unset, lint"),
    "doctor": Lazy("trioka.cli.cluster.doctor", "doctor", "is the cluster reachable and well?"),
    "storage": Lazy("trioka.cli.node.storage", "storage", "format a node's directories, and look at them"),
    "segments": Lazy("trioka.cli.node.segments", "segments", "list, dump and verify log files"),
    "bench": Lazy("trioka.cli.bench", "bench", "how fast is this broker, from here?"),
    "explain": Lazy("trioka.cli.explain", "explain", "what an error code or a config key means"),
    "context": Lazy("trioka.cli.context", "context", "names for clusters"),
    "completion": Lazy("trioka.cli.terminal.completion", "completion", "for bash, zsh and fish"),
    "spark": Lazy("trioka.pipeline.spark_commands", "spark", "Spark with Kafka, set up", "spark"),
    "pipeline": Lazy("trioka.pipeline.pipeline_commands", "pipeline", "pipelines of Spark, run and watched", "spark"),
}
ALIASES: Final = {
    "topic": "topics",
    "group": "groups",
    "segment": "segments",
    "configs": "config",
    "contexts": "context",
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


def load(name: str, lazy: Lazy) -> click.Command:
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
        callback=lambda ctx, _, value: _say_version(ctx) if value else None,
        help="print the version",
    )
)


def _say_version(ctx: click.Context) -> None:
    output.put(f"trioka {__version__}")
    ctx.exit()


@click.pass_context
def _help(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        output.put(ctx.get_help())


root.callback = _help


def main(arguments: Sequence[str]) -> int:
    """Runs one command line, and returns the exit code."""
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
        output.nobody_reads()
        return Exit.OK


def _usage(error: click.UsageError) -> Failure:
    where = error.ctx.command_path if error.ctx is not None else "trioka"
    message = error.format_message()
    return Failure(
        message[0].lower() + message[1:].removesuffix("."), exit_code=Exit.USAGE, hints=[f"see: {where} --help"]
    )


def _explain(failure: Failure) -> int:
    output.talk(str(failure))
    return failure.exit_code
