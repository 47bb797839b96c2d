"""Measures the cost of quotas: CPU per request of the fast paths, without quotas and with quotas that are never
reached.

    python bench/quotas.py [--rounds 15] [--directory DIR]
    python bench/quotas.py --against CHECKOUT [--processes 10]

Rounds of the two are interleaved, in one process, and their medians are compared. With `--against`, processes of this
code and of another checkout are interleaved instead, both without quotas, and the medians of best rounds are compared.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import trio
from request import (
    AT_ONCE,
    FAST_FOLDER,
    FETCH_VERSION,
    FETCHED_BYTES,
    KIB,
    PRODUCE_VERSION,
    REPEAT,
    Bench,
    a_batch,
    fetch,
    framed,
    produce,
    settings,
    started,
)

from trioka.broker.broker import Broker
from trioka.broker.network.connection import Connection
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest

FAR_ABOVE = 1e12
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
CONNECTIONS = 32
START = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"

Rows = dict[str, tuple[Callable[[], object], int]]
"""The work of each row, and its number of requests."""


async def set_quotas(broker: Broker) -> None:
    """Set quotas for all users. They apply once the broker's metadata has them."""
    entry = AlterClientQuotasRequest.Entry
    wanted = entry(
        entity=[entry.Entity(entity_type="user", entity_name=None)],
        ops=[entry.Op(key=key, value=FAR_ABOVE, remove=False) for key in QUOTAS],
    )
    await broker.quorum.change(lambda controller: controller.alter_client_quotas([wanted], validate_only=False))
    while broker.dispatch.quotas is None:  # noqa: ASYNC110 - soon
        await trio.sleep(0.001)


def rows_of(bench: Bench) -> Rows:
    small = framed(produce(a_batch(1, 100)), PRODUCE_VERSION)
    large = framed(produce(a_batch(15, KIB)), PRODUCE_VERSION)
    fetching, fetched = Bench(bench.broker, bench.rounds), framed(fetch(0, FETCHED_BYTES), FETCH_VERSION)
    crowd = [Bench(bench.broker, bench.rounds).connection for _ in range(CONNECTIONS)]
    for _ in range(FETCHED_BYTES // len(large) + 2):
        bench.say(large)
    for connection in crowd:
        for _ in range(3):
            receive(connection, small)
            connection.outgoing.clear()
            connection.outgoing_bytes = 0
    return {
        "Produce of 16 KB, one at a time": (lambda: [bench.say(large) for _ in range(100)], 100),
        "Produce of 100 B, pipelined": (lambda: [bench.say(small * AT_ONCE) for _ in range(REPEAT)], REPEAT * AT_ONCE),
        f"Produce of 100 B, {CONNECTIONS} connections": (
            lambda: [say_together(crowd, small) for _ in range(REPEAT)],
            REPEAT * CONNECTIONS,
        ),
        "Fetch of 64 KB": (lambda: [fetching.say(fetched) for _ in range(100)], 100),
    }


def receive(connection: Connection, request: bytes) -> None:
    buffer = connection.receive_buffer()
    buffer[: len(request)] = request
    connection.received(len(request))


def say_together(crowd: list[Connection], request: bytes) -> None:
    """A round of the network in which each connection has sent a request; sends no responses."""
    coalescer = crowd[0]._dispatch.coalescer
    coalescer.is_open = True
    for connection in crowd:
        receive(connection, request)
    coalescer.flush()
    for connection in crowd:
        assert connection.deferred, "the request took another path"
        connection.deferred = None
        connection.reader.start = connection.reader.end = 0
    coalescer.scratch.used = 0
    coalescer.is_open = False


def cpu_us(work: Callable[[], object], count: int) -> float:
    before = time.process_time()
    work()
    return (time.process_time() - before) / count * 1e6


async def with_and_without(directory: str, rounds: int) -> None:
    async with started(settings(directory), {"bench": 1}, rounds) as bench:
        rows = rows_of(bench)
        found: dict[tuple[str, bool], list[float]] = {(name, is_set): [] for name in rows for is_set in (False, True)}
        await set_quotas(bench.broker)
        dispatch, quotas = bench.broker.dispatch, bench.broker.dispatch.quotas
        for name, (work, count) in rows.items():
            for number in range(2 * (rounds + 1)):
                is_set = bool(number % 2)
                dispatch.quotas = quotas if is_set else None
                microseconds = cpu_us(work, count)
                if number > 1:  # the first of each only warms up
                    found[name, is_set].append(microseconds)
        for name in rows:
            off, on = statistics.median(found[name, False]), statistics.median(found[name, True])
            print(f"{name:<34} no quota {off:7.2f} µs, far above {on:7.2f} µs: {on / off:.3f} times")


async def without(directory: str, rounds: int) -> None:
    """Print the best round of each row, as JSON."""
    async with started(settings(directory), {"bench": 1}, rounds) as bench:
        found: dict[str, float] = {}
        rows = rows_of(bench)
        for _ in range(rounds):
            for name, (work, count) in rows.items():
                found[name] = min(found.get(name, float("inf")), cpu_us(work, count))
        print(json.dumps(found))


def best_rounds(checkout: Path, rounds: int) -> dict[str, float]:
    command = [sys.executable, "-P", "-c", START, __file__, "--without", "--rounds", str(rounds)]
    path = os.pathsep.join((str(checkout), str(checkout / "bench")))
    found = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(found.stdout)
    return figures


def compare(other: Path, processes: int, rounds: int) -> None:
    here = Path(__file__).resolve().parent.parent
    ours, theirs = [], []
    for number in range(processes):
        for checkout in (here, other) if number % 2 else (other, here):
            (ours if checkout == here else theirs).append(best_rounds(checkout, rounds))
    for name in ours[0]:
        mine, before = (statistics.median(each[name] for each in found) for found in (ours, theirs))
        print(f"{name:<34} there {before:7.2f} µs, here {mine:7.2f} µs: {mine / before:.3f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--directory", default=FAST_FOLDER if Path(FAST_FOLDER).is_dir() else None)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--processes", type=int, default=10, help="of each checkout")
    parser.add_argument("--without", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.against is not None:
        compare(chosen.against, chosen.processes, chosen.rounds)
        return
    with tempfile.TemporaryDirectory(dir=chosen.directory) as folder:
        trio.run(without if chosen.without else with_and_without, folder, chosen.rounds)


if __name__ == "__main__":
    main()
