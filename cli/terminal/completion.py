"""`trioka completion SHELL`: a script that makes the shell complete commands, options and names of topics.

eval "$(trioka completion bash)"        trioka completion fish | source
"""

from typing import Final

import click
from click.shell_completion import get_completion_class

from .output import write_stdout

VARIABLE: Final = "_TRIOKA_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints the script for SHELL: bash, zsh or fish."""
    made = get_completion_class(shell)
    assert made is not None
    write_stdout(made(ctx.find_root().command, {}, "trioka", VARIABLE).source())
