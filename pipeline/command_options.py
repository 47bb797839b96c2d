"""What the commands of `trioka pipeline` share: options, and errors as sentences with an exit code."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from .errors import PipelineFailed
from .installation.cache import Unavailable
from .pipeline import LOCAL_MASTER
from .spark_commands import Failed, one_sentence

BROKERS_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"

FILE = click.argument("file", type=click.Path(path_type=Path))
BOOTSTRAP = click.option(
    "--bootstrap-server", "bootstrap", metavar="HOST:PORT,…", help="Brokers, instead of those in the file."
)
MASTER = click.option("--master", default=LOCAL_MASTER, show_default=True, help="Any Spark master.")
CONF = click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark.")


DEBUG = click.option("--debug", is_flag=True, help="Show the whole trace of an error.")


@contextmanager
def explained(*, debug: bool = False) -> Iterator[None]:
    """Convert each error to its sentences and its exit code. `debug` shows the trace, too."""
    with one_sentence():
        try:
            yield
        except PipelineFailed as failure:
            if debug:
                cause = failure.__cause__ or failure.__context__ or failure
                click.echo("".join(traceback.format_exception(cause)), err=True)
            raise Failed("\nerror: ".join(str(failure).splitlines()) or "it failed", failure.exit_code) from None
        except ModuleNotFoundError as missing:
            raise Unavailable(f"'{missing.name}' is not installed: pip install 'trioka[spark]'.") from None


def talk(text: str) -> None:
    click.echo(text, err=True)


def settings_of(conf: tuple[str, ...]) -> dict[str, str]:
    wrong = [one for one in conf if "=" not in one]
    if wrong:
        raise click.UsageError(f"--conf {wrong[0]} must be KEY=VALUE.")
    return dict(one.split("=", 1) for one in conf)


@contextmanager
def use_brokers(bootstrap: str | None) -> Iterator[None]:
    """Give definition files the brokers of the command line: they read them from the environment."""
    before = os.environ.get(BROKERS_VARIABLE)
    if bootstrap is not None:
        os.environ[BROKERS_VARIABLE] = bootstrap
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(BROKERS_VARIABLE, None)
        else:
            os.environ[BROKERS_VARIABLE] = before
