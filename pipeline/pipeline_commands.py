"""`trioka pipeline`: declared pipelines on Spark. FILE is the short form (TOML), a graph, or a folder with one.

    trioka pipeline new --topic T           a file for a topic, with the schema of samples
    trioka pipeline test FILE               the cases beside it: rows in, rows out
    trioka pipeline maintain FILE           compaction, old snapshots, orphan files
    trioka pipeline check FILE              print its errors, or its plan; --sql: analysed by Spark
    trioka pipeline graph FILE              its tables, views and sinks as text or SVG
    trioka pipeline run FILE                until Ctrl-C; --once: until all existing records were read
    trioka pipeline package FILE            a graph with its modules as a zip file, for a cluster
    trioka pipeline backfill FILE           a bounded range, in parallel to the stream
    trioka pipeline lag FILE                the lag of its group
    trioka pipeline example                 orders, revenue per minute, a table and a picture: all of it, in one command

Data goes to standard output, messages to standard error. Exit codes: 2 for invalid input, 3 for an unreachable
resource, 130 and 143 for Ctrl-C and SIGTERM before the stream runs. A stream that they stop ends with 0.
"""

import json
import os
from datetime import timedelta
from pathlib import Path

import click

from .command_options import (
    BOOTSTRAP,
    BROKERS_VARIABLE,
    CONF,
    DEBUG,
    FILE,
    MASTER,
    explained,
    settings_of,
    talk,
    use_brokers,
)
from .errors import InvalidPipeline, PipelineFailed
from .graph.spec import is_graph
from .graph_pipeline import GraphPipeline
from .pipeline import Pipeline
from .runner.late import late_sentence
from .runner.signals import Signals
from .sources.bootstrap import DEFAULT_BOOTSTRAP


@click.group()
def pipeline() -> None:
    """Topics in, tables out: declared pipelines on Spark."""


@pipeline.command()
@FILE
@BOOTSTRAP
@DEBUG
@click.option("--offline", is_flag=True, help="Do not check whether the topics exist.")
@click.option("--sql", is_flag=True, help="Let Spark analyse SQL and rules, too. A graph is always analysed.")
def check(file: Path, bootstrap: str | None, debug: bool, offline: bool, sql: bool) -> None:
    """Say everything that is wrong with FILE, or print its plan."""
    with explained(debug=debug):
        if is_graph(file):
            with use_brokers(bootstrap):
                click.echo(GraphPipeline.read(file).drawing(asked=not offline).text())
            return
        read = Pipeline.read(file, bootstrap=bootstrap)
        text = read.plan(asked=not offline)
        if sql:
            read.analyse()
        click.echo(text)


@pipeline.command()
@FILE
@BOOTSTRAP
@DEBUG
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture to this file.")
def graph(file: Path, bootstrap: str | None, debug: bool, svg: Path | None) -> None:
    """Draw the tables, views, sinks and topics of FILE."""
    with explained(debug=debug), use_brokers(bootstrap):
        drawing = GraphPipeline.read(file).drawing() if is_graph(file) else Pipeline.read(file).drawing()
        if svg is None:
            click.echo(drawing.text())
            return
        try:
            svg.write_text(drawing.svg())
        except OSError as error:
            raise InvalidPipeline(f"{svg} cannot be written: {error.strerror}.") from None
        talk(f"the picture is {svg}")


@pipeline.command()
@FILE
@BOOTSTRAP
@MASTER
@CONF
@DEBUG
@click.option("--once", is_flag=True, help="Read all records that are there now, then end.")
@click.option("--events", type=click.Path(path_type=Path, dir_okay=False), help="Write events as JSON to this file.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=0, help="Serve Prometheus metrics.")
def run(
    file: Path,
    bootstrap: str | None,
    master: str,
    conf: tuple[str, ...],
    debug: bool,
    once: bool,
    events: Path | None,
    metrics_port: int,
) -> None:
    """Run the pipeline in FILE until Ctrl-C."""
    with explained(debug=debug), Signals() as signals:
        with use_brokers(bootstrap):
            read = GraphPipeline.read(file) if is_graph(file) else Pipeline.read(file, bootstrap=bootstrap)
            read.run(
                once=once,
                master=master,
                settings=settings_of(conf),
                say=talk,
                stop=signals.stop,
                began=signals.streaming,
                events=events,
                metrics_port=metrics_port,
            )
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
        refuse_graph(file, "A graph has no backfill")
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


def refuse_graph(file: Path, sentence: str) -> None:
    if is_graph(file):
        raise InvalidPipeline(f"{file} is a graph. {sentence}.")


def _point(text: str) -> str | dict[str, dict[str, int]]:
    if not text.startswith("{"):
        return text
    try:
        found: dict[str, dict[str, int]] = json.loads(text)
        return found
    except ValueError as error:
        raise InvalidPipeline(f"{text} is not JSON: {error}.") from None


@pipeline.command()
@BOOTSTRAP
@click.option("--topic", required=True, help="The topic to read; some of its newest records give the schema.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file; TOPIC.toml if not said."
)
def new(bootstrap: str | None, topic: str, output: Path | None) -> None:
    """Write a pipeline's file for a topic."""
    from .new_pipeline import new_pipeline

    with explained():
        address = bootstrap or os.environ.get(BROKERS_VARIABLE) or DEFAULT_BOOTSTRAP
        file = output or Path(f"{topic}.toml")
        new_pipeline(topic, address, file)
        talk(f"the file is {file}; check it: trioka pipeline check {file}")


@pipeline.command()
@FILE
@MASTER
@CONF
@DEBUG
@click.option("--case", "cases", multiple=True, help="Only the case of this name; may be repeated.")
def test(file: Path, master: str, conf: tuple[str, ...], debug: bool, cases: tuple[str, ...]) -> None:
    """Run the cases in the folder tests beside FILE: rows in, rows out."""
    from .cases import run_cases

    with explained(debug=debug), Signals():
        failed = run_cases(file, cases, master=master, settings=settings_of(conf), say=click.echo)
        if failed:
            raise PipelineFailed(f"{failed} case{'s' if failed > 1 else ''} failed.")


@pipeline.command()
@FILE
@BOOTSTRAP
@MASTER
@CONF
@DEBUG
@click.option("--keep-days", default=7, show_default=True, type=click.IntRange(1), help="Keep snapshots so long.")
def maintain(
    file: Path, bootstrap: str | None, master: str, conf: tuple[str, ...], debug: bool, keep_days: int
) -> None:
    """Compact the Iceberg tables of FILE, and remove old snapshots and orphan files."""
    with explained(debug=debug), Signals():
        days, settings = timedelta(days=keep_days), settings_of(conf)
        if is_graph(file):
            with use_brokers(bootstrap):
                GraphPipeline.read(file).maintain(keep=days, master=master, settings=settings, say=talk)
        else:
            Pipeline.read(file, bootstrap=bootstrap).maintain(keep=days, master=master, settings=settings, say=talk)


@pipeline.command()
@FILE
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file; NAME.zip if not said.")
def package(file: Path, output: Path | None) -> None:
    """Pack the graph in FILE and the modules beside it, for --py-files and addPyFile."""
    from .package import write_package

    with explained():
        if not is_graph(file):
            raise InvalidPipeline(f"{file} is the short form, which has no Python to pack: the file is enough.")
        spec = GraphPipeline.read(file).spec
        target = output or Path(f"{spec.name}.zip")
        count = write_package(spec, target)
        talk(f"{target} has {count} files")


@pipeline.command()
@FILE
@BOOTSTRAP
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def lag(file: Path, bootstrap: str | None, output: str) -> None:
    """How far the pipeline in FILE is behind its topics."""
    with explained():
        refuse_graph(file, "The lag of a flow of a graph is that of its group: trioka lag --group PIPELINE.FLOW")
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
@click.option("--keep", is_flag=True, help="Keep the example's broker until Ctrl-C.")
def example(bootstrap: str | None, master: str, folder: Path, count: int, keep: bool) -> None:
    """Generated orders, validated, revenue per minute into an Iceberg table, a query and a picture of it."""
    if keep and bootstrap is not None:
        raise click.UsageError("--keep is for the example's own broker, without --bootstrap-server.")
    with explained(), Signals() as signals:
        from .example import example_broker, next_steps, run_example

        with example_broker(bootstrap, talk) as address:
            click.echo(run_example(folder, bootstrap=address, count=count, master=master, say=talk))
            if keep:
                talk(next_steps(folder, address))
                signals.streaming()
                signals.stop.wait()
