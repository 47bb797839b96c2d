"""`trioka bench`: measures the throughput and latency of a broker from this machine.

Batches are prepared once and sent over plain sockets, so that the figures reflect the broker and the network and as
little as possible the client.

    produce   each client sends batches to a partition of its own, one request at a time
    consume   each client reads its partition from the start, after the partition was filled
    e2e       one record at a time, from its send time to the time when a waiting reader receives it

The run creates a topic and deletes it at the end. `--save` keeps the result, `--compare` shows a saved result beside
the new one.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

import click

from .bench_load import LOADS, Job, Outcome
from .client.contexts import write_whole
from .client.settings import Settings
from .options import Duration, with_output, with_settings
from .terminal.failure import Exit, Failure
from .terminal.output import Column, show, write_stderr
from .terminal.progress import Progress
from .topics.command import create_topic
from .topics.deletion import delete_topics
from .topics.produce import CODECS

MAX_CLIENTS: Final = 64
LOOK_S: Final = 0.2  # interval between looks at the progress of the clients
COLUMNS: Final = (
    Column("WHAT", "what"),
    Column("RECORDS", "records"),
    Column("SECONDS", "seconds"),
    Column("RECORDS/s", "records_per_s"),
    Column("MB/s", "mb_per_s"),
    Column("P50-MS", "p50_ms"),
    Column("P99-MS", "p99_ms"),
    Column("MAX-MS", "max_ms"),
    Column("RATIO", "ratio"),
)


class Load(NamedTuple):
    """The settings of a measurement. They are saved with the result, because only results of equal settings are
    compared.
    """

    what: str
    size: int
    clients: int
    rate: int | None
    acks: str
    compression: str


@click.command("bench")
@click.argument("what", type=click.Choice(list(LOADS)))
@click.option("--msgs", type=int, metavar="N", help="the total number of records")
@click.option("--duration", type=Duration(), metavar="TIME", help="the duration; default 5s")
@click.option(
    "--size", type=click.IntRange(16, 1 << 20), default=1024, metavar="BYTES", help="bytes per record; default 1024"
)
@click.option(
    "--clients", type=click.IntRange(1, MAX_CLIENTS), default=1, metavar="N", help="concurrent clients; default 1"
)
@click.option("--rate", type=click.IntRange(1), metavar="N", help="records per second in total; default unlimited")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", metavar="N", help="all, 1 or 0")
@click.option("--compression", "-z", type=click.Choice(CODECS), default="none", metavar="CODEC", help=", ".join(CODECS))
@click.option("--save", type=click.Path(dir_okay=False), metavar="FILE", help="save the result to this file")
@click.option(
    "--compare", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="compare with a saved result"
)
@with_output
@with_settings
def bench(
    settings: Settings,
    what: str,
    msgs: int | None,
    duration: int | None,
    save: str | None,
    compare: str | None,
    output: str,
    **load: Any,
) -> int:
    """Measures what a broker does: produce, consume or e2e."""
    wanted = Load(what, **load)
    older = None if compare is None else _older(compare, wanted)
    seconds = None if msgs is not None and duration is None else (duration or 5000) / 1000
    with settings.kafka() as kafka:
        topic = f"trioka-bench-{os.getpid()}-{time.time_ns()}"
        create_topic(kafka, topic, wanted.clients)
        try:
            outcome = _run(settings, topic, wanted, msgs, seconds)
        finally:
            delete_topics(kafka, [topic], if_exists=True)
    row: dict[str, Any] = {"what": what, **outcome.figures(), **wanted._asdict()}
    if older is not None:
        row["ratio"] = _ratio(what, row, older)
    show([row], COLUMNS if older is not None else COLUMNS[:-1], output, name="what")
    if save is not None:
        write_whole(Path(save), row)
    return Exit.OK


def _run(settings: Settings, topic: str, load: Load, msgs: int | None, seconds: float | None) -> Outcome:
    share = None if msgs is None else -(-msgs // load.clients)
    pace = None if load.rate is None else load.rate / load.clients
    done = [0] * load.clients
    jobs = [
        Job(
            settings=settings,
            topic=topic,
            partition=number,
            size=load.size,
            acks=-1 if load.acks == "all" else int(load.acks),
            compression=load.compression,
            rate=pace,
            records=share,
            seconds=seconds,
            done=done,
        )
        for number in range(load.clients)
    ]
    outcomes: list[Outcome] = []
    failures: list[Exception] = []
    threads = [Thread(target=_work, args=(LOADS[load.what], job, outcomes, failures), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    with Progress(f"bench {load.what}", "records", None if share is None else share * load.clients) as progress:
        for thread in threads:
            while thread.is_alive():
                thread.join(LOOK_S)
                progress.reach(sum(done))
    if failures:
        raise failures[0]
    return Outcome.together(outcomes)


def _work(work: Callable[[Job], Outcome], job: Job, outcomes: list[Outcome], failures: list[Exception]) -> None:
    try:
        outcomes.append(work(job))
    except Exception as error:  # any error: the main thread explains it
        failures.append(error)


def _older(file: str, wanted: Load) -> dict[str, Any]:
    try:
        older: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
        differing = [key for key, value in wanted._asdict().items() if older[key] != value]
    except (OSError, ValueError, KeyError, TypeError):
        raise Failure(f"{file} holds no result of trioka bench", exit_code=Exit.USAGE) from None
    if differing:
        write_stderr(f"note: it is not the same load: {', '.join(differing)} differ")
    return older


def _ratio(what: str, row: dict[str, Any], older: dict[str, Any]) -> str:
    """The ratio of new to old, turned so that above 1 is better."""
    key = "p50_ms" if what == "e2e" else "records_per_s"
    new, old = (older[key], row[key]) if what == "e2e" else (row[key], older[key])
    return f"{new / old:.2f}x" if old else "-"
