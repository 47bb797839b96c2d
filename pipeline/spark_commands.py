"""`trioka spark`: Spark's own programs, configured with the Kafka connector.

    trioka spark shell                      PySpark at a prompt
    trioka spark submit FILE ARG…           a program on Spark
    trioka spark coords                     the jars that go with the installed PySpark

`shell` and `submit` become Spark's `pyspark` and `spark-submit`: arguments after `--` are passed on. Data goes to
standard output, messages to standard error. Exit codes: 2 for a missing requirement, 3 for an unreachable one.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import click

from .installation import jars
from .installation.cache import Unavailable, Unreachable
from .installation.progress import Progress
from .installation.repository import checked
from .runner import session
from .sources.bootstrap import InvalidAddress, reach

EXIT_MISSING = 2
EXIT_UNREACHABLE = 3


class Failed(click.ClickException):
    """One sentence on standard error, and the exit code of its kind."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code  # type: ignore[misc]  # as in click: the class's is only the default

    def show(self, file: object = None) -> None:
        click.echo(f"error: {self.message}", err=True)


@contextmanager
def one_sentence() -> Iterator[None]:
    """The error for a missing requirement, as a command reports it."""
    try:
        yield
    except Unreachable as missing:
        raise Failed(str(missing), EXIT_UNREACHABLE) from None
    except (Unavailable, InvalidAddress) as missing:
        raise Failed(str(missing), EXIT_MISSING) from None


Command = Callable[..., None]


def spark_options(command: Command) -> Command:
    """The options of `shell` and `submit`."""
    for option in reversed(
        (
            click.option("--master", default=session.LOCAL_MASTER, show_default=True, help="Any Spark master."),
            click.option(
                "--bootstrap-server", "bootstrap", metavar="HOST:PORT,…", help="Check that these brokers respond first."
            ),
            click.option("--iceberg", is_flag=True, help="Add Iceberg, with a catalog of tables."),
            click.option(
                "--warehouse",
                default=session.WAREHOUSE,
                show_default=True,
                metavar="DIR",
                help="The folder of its tables.",
            ),
            click.option("--avro", is_flag=True, help="Add from_avro and to_avro."),
            click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; overrides ours."),
        )
    ):
        command = option(command)
    return command


@click.group()
def spark() -> None:
    """Spark, with its Kafka connector ready."""


@spark.command(context_settings={"ignore_unknown_options": True})
@spark_options
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
def shell(rest: Sequence[str], **options: object) -> None:
    """PySpark at a prompt: `spark` is the session. More options of Spark's pyspark go behind --."""
    _become("pyspark", rest, **options)  # type: ignore[arg-type]  # click knows the types, mypy cannot


@spark.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@spark_options
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
def submit(file: str, rest: Sequence[str], **options: object) -> None:
    """Run FILE with its arguments on Spark."""
    _become("spark-submit", (file, *rest), **options)  # type: ignore[arg-type]


@spark.command()
@click.option("--pyspark", metavar="VERSION", help="For this PySpark instead of the installed one.")
@click.option("--iceberg", is_flag=True, help="Iceberg's too.")
@click.option("--avro", is_flag=True, help="Avro's too.")
@click.option("--output", "-o", type=click.Choice(["name", "table", "path", "json"]), default="name", show_default=True)
def coords(pyspark: str | None, iceberg: bool, avro: bool, output: str) -> None:
    """The exact jars that go with the installed PySpark: group:artifact:version, one a line.

    `-o table` adds the checksums; `-o path` fetches them and prints where they lie, as spark.jars wants it.
    """
    with one_sentence():
        release = jars.release_of(pyspark or jars.installed_pyspark())
        pins = jars.pins_for(release, iceberg=iceberg, avro=avro)
        if output == "path":
            with Progress() as progress:
                click.echo(",".join(str(checked(pin, progress.download)) for pin in pins))
            return
    if output == "json":
        click.echo(json.dumps([{"coordinates": pin.coordinates, "sha256": pin.sha256} for pin in pins], indent=1))
        return
    width = max(len(pin.coordinates) for pin in pins)
    for pin in pins:
        click.echo(f"{pin.coordinates:<{width}}  {pin.sha256}" if output == "table" else pin.coordinates)


def _become(
    program: str,
    rest: Sequence[str],
    *,
    master: str,
    bootstrap: str | None,
    iceberg: bool,
    warehouse: str,
    avro: bool,
    conf: Sequence[str],
) -> None:
    """Replace this process with Spark's program."""
    settings = dict(_setting(text) for text in conf)
    with one_sentence(), Progress() as progress:
        if bootstrap is not None:
            reach(bootstrap)
        prepared = session.prepare(
            master=master, iceberg=iceberg, warehouse=warehouse, avro=avro, settings=settings, progress=progress
        )
        command = arguments(program, prepared, rest)
    if iceberg:
        Path(warehouse).mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, **prepared.environment})


def arguments(program: str, prepared: session.Prepared, rest: Sequence[str]) -> list[str]:
    """The command line of one of Spark's programs."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise Unavailable("PySpark is not installed: pip install 'trioka[spark]'.")
    settings = [part for key, value in prepared.settings.items() for part in ("--conf", f"{key}={value}")]
    return [str(Path(found.origin).parent / "bin" / program), *settings, *rest]


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise click.UsageError(f"--conf {text} must be a setting of Spark, such as spark.executor.memory=2g.")
    return key, value
