"""Options that commands share: the cluster, names, forms of output, and confirmation before destructive changes."""

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from .client.settings import DEFAULT_TIMEOUT_S, find_settings
from .terminal.failure import Exit, Failure
from .terminal.output import FORMATS, is_interactive, write_stderr
from .terminal.time_parsing import parse_duration_ms

R = TypeVar("R")
COMPLETION_TIMEOUT_S: Final = 1.0


class Duration(click.ParamType[int]):
    """A length of time, in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ms(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


def with_settings(function: Callable[..., R]) -> Callable[..., R]:
    """Adds the options that name a cluster, and passes them on as `settings`."""

    @click.option("--bootstrap-server", "-b", metavar="HOST:PORT", help="default localhost:9092")
    @click.option("--command-config", metavar="FILE", help="client.properties: security, login")
    @click.option("--context", metavar="NAME", help="a cluster by its name; see trioka context")
    @click.option("--timeout", type=Duration(), metavar="TIME", help=f"default {DEFAULT_TIMEOUT_S:g}s")
    @functools.wraps(function)
    def wrapped(
        *arguments: Any,
        bootstrap_server: str | None,
        command_config: str | None,
        context: str | None,
        timeout: int | None,
        **keywords: Any,
    ) -> R:
        settings = find_settings(
            bootstrap_server=bootstrap_server,
            command_config=command_config,
            context=context,
            timeout_s=DEFAULT_TIMEOUT_S if timeout is None else timeout / 1000,
        )
        return function(*arguments, settings=settings, **keywords)

    return wrapped


def with_kafka(function: Callable[..., R]) -> Callable[..., R]:
    """Adds the same options, and passes on the cluster itself as `kafka`."""

    @with_settings
    @functools.wraps(function)
    def wrapped(*arguments: Any, settings: Any, **keywords: Any) -> R:
        with settings.kafka() as kafka:
            return function(*arguments, kafka=kafka, **keywords)

    return wrapped


def with_output(function: Callable[..., R]) -> Callable[..., R]:
    """Adds `-o`, as `output`."""
    help = f"one of {', '.join(FORMATS)}"
    option = click.option("--output", "-o", type=click.Choice(FORMATS), default="table", metavar="FORM", help=help)
    return option(function)


def complete(noun: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Shell completion of topic and group names. A cluster that does not answer at once completes nothing."""

    def names(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
        from .client.group_state import all_groups

        try:
            settings = find_settings(
                bootstrap_server=ctx.params.get("bootstrap_server"),
                command_config=ctx.params.get("command_config"),
                context=ctx.params.get("context"),
                timeout_s=COMPLETION_TIMEOUT_S,
            )
            with settings.kafka() as kafka:
                if noun == "topic":
                    found = [topic.name or "" for topic in kafka.cluster().topics]
                else:
                    found = [each["group"] for each in all_groups(kafka)]
        except Failure:
            return []
        return sorted(name for name in found if name.startswith(begun))

    return names


def with_name_arguments(noun: str, *, required: bool = True) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Names are positional, or follow `--topic` (`--group` …) or `--name`; the command gets them as `names`."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @click.argument("names", nargs=-1, metavar=f"[{noun.upper()}]...", shell_complete=complete(noun))
        @click.option(f"--{noun}", "--name", "named", multiple=True, metavar=noun.upper(), help=f"a {noun}, by name")
        @functools.wraps(function)
        def wrapped(*arguments: Any, names: tuple[str, ...], named: tuple[str, ...], **keywords: Any) -> R:
            all_names = tuple(dict.fromkeys((*names, *named)))
            if required and not all_names:
                raise click.UsageError(f"name a {noun}.")
            return function(*arguments, names=all_names, **keywords)

        return wrapped

    return decorate


def with_execute_option(function: Callable[..., R]) -> Callable[..., R]:
    """Adds `--execute` and `-y`, as `execute`."""
    option = click.option(
        "--execute", "--yes", "-y", is_flag=True, help="carry out the plan; otherwise it is only shown"
    )
    return option(function)


def confirmed(execute: bool, question: str) -> bool:
    """Whether to execute the plan that was shown. On a terminal the user confirms; a script has to pass the flag."""
    if execute:
        return True
    if is_interactive():
        return bool(click.confirm(question, err=True))
    write_stderr("This is the plan; nothing was changed. Add --execute to apply it.")
    return False


def pairs(texts: tuple[str, ...], flag: str) -> dict[str, str]:
    """`("a=1", "b=2")` as a dictionary."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            raise click.UsageError(f"{flag} {text} must be KEY=VALUE.")
        found[key.strip()] = value
    return found


def exit_code_of(failures: list[Failure], attempts: int) -> int:
    """The exit code of a command with several actions: all, some (7) or none of them may have failed."""
    if not failures:
        return Exit.OK
    for failure in failures[:-1]:
        write_stderr(str(failure))
    if len(failures) < attempts:
        write_stderr(str(failures[-1]))
        return Exit.PARTLY
    raise failures[-1]
