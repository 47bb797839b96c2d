"""`trioka pipeline`: declared pipelines on Spark.

    trioka pipeline check FILE              print its errors, or its plan
    trioka pipeline run FILE                until Ctrl-C; --once: until all existing records were read
    trioka pipeline backfill FILE           a bounded range, in parallel to the stream
    trioka pipeline lag FILE                the lag of its group
    trioka pipeline example                 orders, revenue per minute, a table and a picture: all of it, in one command

Data goes to standard output, messages to standard error. Exit codes: 2 for invalid input, 3 for an unreachable
resource, 130 and 143 for Ctrl-C and SIGTERM before the stream runs. A stream that they stop ends with 0.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from .errors import InvalidPipeline, PipelineFailed
from .installation.cache import Unavailable
from .pipeline import LOCAL_MASTER, Pipeline
from .runner.late import late_sentence
from .runner.signals import Signals
from .spark_commands import Failed, one_sentence

FILE = click.argument("file", type=click.Path(path_type=Path))
BOOTSTRAP = click.option(
    "--bootstrap-server", "bootstrap", metavar="HOST:PORT,…", help="Brokers, instead of those in the file."
)
MASTER = click.option("--master", default=LOCAL_MASTER, show_default=True, help="Any Spark master.")
CONF = click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark.")


@contextmanager
def explained() -> Iterator[None]:
    """Convert each error to its sentences and its exit code."""
    with one_sentence():
        try:
            yield
        except PipelineFailed as failure:
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


@click.group()
def pipeline() -> None:
    """Topics in, tables out: declared pipelines on Spark."""


@pipeline.command()
@FILE
@BOOTSTRAP
@click.option("--offline", is_flag=True, help="Do not check whether the topics exist.")
def check(file: Path, bootstrap: str | None, offline: bool) -> None:
    """Say everything that is wrong with FILE, or print its plan."""
    with explained():
        click.echo(Pipeline.read(file, bootstrap=bootstrap).plan(asked=not offline))


@pipeline.command()
@FILE
@BOOTSTRAP
@MASTER
@CONF
@click.option("--once", is_flag=True, help="Read all records that are there now, then end.")
def run(file: Path, bootstrap: str | None, master: str, conf: tuple[str, ...], once: bool) -> None:
    """Run the pipeline in FILE until Ctrl-C."""
    with explained(), Signals() as signals:
        declared = Pipeline.read(file, bootstrap=bootstrap)
        settings = settings_of(conf)
        declared.run(once=once, master=master, settings=settings, say=talk, stop=signals.stop, began=signals.streaming)
        if signals.stop.is_set():
            talk("stopped; the next start goes on from the last batch")


@pipeline.command()
@FILE
@BOOTSTRAP
@MASTER
@CONF
@click.option("--from", "since", default="earliest", show_default=True, metavar="POINT")
@click.option("--to", "until", metavar="POINT", help="Default: the start of the stream; with --into: latest.")
@click.option("--min-partitions", type=click.IntRange(1), help="Read in at least N parallel parts.")
@click.option("--into", metavar="NAME", help="Another table or topic of the same kind.")
def backfill(
    file: Path,
    bootstrap: str | None,
    master: str,
    conf: tuple[str, ...],
    since: str,
    until: str | None,
    min_partitions: int | None,
    into: str | None,
) -> None:
    """Read a bounded range again, beside the stream.

    A POINT is earliest, latest, a time such as 2026-11-16T08:00:00Z, or offsets as JSON: {"orders": {"0": 23}}.
    """
    with explained(), Signals():
        count = Pipeline.read(file, bootstrap=bootstrap).backfill(
            since=_point(since),
            until=None if until is None else _point(until),
            min_partitions=min_partitions,
            into=into,
            master=master,
            settings=settings_of(conf),
            say=talk,
        )
        click.echo(count)


def _point(text: str) -> str | dict[str, dict[str, int]]:
    if not text.startswith("{"):
        return text
    try:
        found: dict[str, dict[str, int]] = json.loads(text)
        return found
    except ValueError as error:
        raise InvalidPipeline(f"{text} is not JSON: {error}.") from None


@pipeline.command()
@FILE
@BOOTSTRAP
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def lag(file: Path, bootstrap: str | None, output: str) -> None:
    """How far the pipeline in FILE is behind its topics."""
    with explained():
        read = Pipeline.read(file, bootstrap=bootstrap)
        found, late = read.lag(), read.late_rows()
    if late:
        talk(late_sentence(late))
    names = ("topic", "partition", "committed", "end", "lag")
    rows = [(one.topic, one.partition, one.committed, one.end, one.records) for one in found]
    if output == "json":
        click.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
        return
    cells = [tuple(name.upper() for name in names)]
    cells += [tuple("-" if cell is None else str(cell) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    for row in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@pipeline.command()
@BOOTSTRAP
@MASTER
@click.option("--folder", default="trioka-example", show_default=True, type=click.Path(path_type=Path))
@click.option("--orders", "count", default=20_000, show_default=True, type=click.IntRange(1, 10_000_000))
def example(bootstrap: str | None, master: str, folder: Path, count: int) -> None:
    """Generated orders, validated, revenue per minute into an Iceberg table, a query and a picture of it."""
    from .example import run_example

    with explained(), Signals():
        shown = run_example(folder, bootstrap=bootstrap, count=count, master=master, say=talk)
    click.echo(shown)
