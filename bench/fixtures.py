"""Measures how long a test waits for the start and the stop of its broker.

    python bench/fixtures.py [--rounds 30]

    first      in a new process: the imports, then the start of a broker
    next       every later start in that process: the cost of the fixture `kafka` per test
    stop       until everything is removed
    process    a broker in a process of its own (process=True)
    8 days     kafka.clock.advance("8d") on a broker with one topic

The CPU time of this process is printed beside the elapsed time, in milliseconds: on a shared machine only the CPU time
is meaningful. The goals (first ≤ 400 ms, next ≤ 30 ms) are for an idle machine with two cores.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

FIRST = """
import time
began, cpu = time.perf_counter(), time.process_time()
from trioka.testing import Broker
kafka = Broker().start()
print(time.perf_counter() - began, time.process_time() - cpu)
kafka.close()
"""

Took = tuple[float, float]  # seconds: elapsed, CPU


def took(work: Callable[[], object]) -> Took:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - cpu


def first() -> Took:
    message = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True).stdout
    clock, cpu = map(float, message.split())
    return clock, cpu


def show(name: str, rounds: list[Took]) -> None:
    best, middle, cpu = (
        min(each[0] for each in rounds),
        median(each[0] for each in rounds),
        min(each[1] for each in rounds),
    )
    sys.stdout.write(f"{name:<12}{best * 1000:>10.1f}{middle * 1000:>10.1f}{cpu * 1000:>10.1f}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="How long a test waits for its broker.")
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    sys.stdout.write(f"{'ms':<12}{'best':>10}{'median':>10}{'CPU':>10}\n")
    show("first", [first() for _ in range(max(3, rounds // 6))])

    from trioka.testing import Broker

    starts, stops, processes, travels = [], [], [], []
    for _ in range(rounds):
        kafka = Broker()
        starts.append(took(kafka.start))
        stops.append(took(kafka.close))
    show("next", starts[1:])
    show("stop", stops[1:])
    for _ in range(max(3, rounds // 6)):
        kafka = Broker(process=True)
        processes.append(took(kafka.start))
        kafka.close()
        with Broker() as kafka:
            kafka.create_topic("orders")
            travels.append(took(lambda kafka=kafka: kafka.clock.advance("8d")))  # type: ignore[misc]
    show("process", processes)
    show("8 days", travels)


if __name__ == "__main__":
    main()
