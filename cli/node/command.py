"""`dev` and `serve` as click commands, built from their declarations; `flags.py` explains why there are two parsers."""

from typing import Any

import click

from .flags import START_COMMANDS, Flag, StartCommand
from .server import RUN


def _option(flag: Flag) -> click.Option:
    if flag.kind is bool:
        return click.Option([flag.name, flag.key], is_flag=True, help=flag.help)
    return click.Option(
        [flag.name, flag.key],
        type=click.Choice(flag.one_of) if flag.one_of else int if flag.kind is int else str,
        default=flag.default,
        multiple=flag.kind is tuple,
        metavar=flag.metavar,
        help=flag.help,
    )


def _command(name: str, starter: StartCommand) -> click.Command:
    parameters: list[click.Parameter] = [_option(flag) for flag in starter.flags]
    if starter.file is not None:
        parameters.append(click.Argument(["file"], required=False, metavar=f"[{starter.file}]"))

    def run(**values: Any) -> None:
        RUN[name](values)

    return click.Command(
        name, callback=run, params=parameters, help=f"{starter.summary[0].upper()}{starter.summary[1:]}."
    )


dev = _command("dev", START_COMMANDS["dev"])
serve = _command("serve", START_COMMANDS["serve"])
