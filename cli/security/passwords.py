"""Reads a password from the terminal or from standard input, never from the command line, which other users can see."""

import sys
from typing import Final

import click

from ..terminal.failure import Exit, Failure
from ..terminal.output import is_interactive

MAX_PASSWORD_CHARS: Final = 1024


def read_password(user: str) -> str:
    """On a terminal, prompt for the password twice; otherwise it is the first line of standard input."""
    if is_interactive():
        password = str(click.prompt(f"Password of '{user}'", hide_input=True, confirmation_prompt=True, err=True))
    else:
        line = sys.stdin.readline(MAX_PASSWORD_CHARS + 2)
        password = line[:-1] if line.endswith("\n") else line
    if not password:
        hints = ["give it on standard input: trioka user passwd NAME < password-file"]
        raise Failure(f"the password of '{user}' is empty", exit_code=Exit.USAGE, hints=hints)
    if len(password) > MAX_PASSWORD_CHARS:
        raise Failure(f"a password has at most {MAX_PASSWORD_CHARS} characters", exit_code=Exit.USAGE)
    return password
