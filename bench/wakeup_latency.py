"""Measures a round trip on this machine, by the processor on which the server sleeps, and by whether it sleeps or
polls.

    python bench/wakeup_latency.py                 all rows, best of five rounds
    python bench/wakeup_latency.py --rounds 1      a look

A client sends 200 B a thousand times a second; a bare loop waits for them, writes them to a file and responds. No
broker can be faster, and the first row is the latency if the system chooses the processor of the server.
`side_by_side.py` measures latencies with a client of real-time priority: the system moves an ordinary client to another
processor if a busy process wakes it, so a server cannot stay on the same processor as an ordinary client. Figures are
µs.
"""

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REQUEST, ANSWER = bytes(200), bytes(60)
PERIOD_S = 0.001
COUNT, UNCOUNTED = 3000, 500
PROCESSORS = os.sched_getaffinity(0)


def serve(sock: socket.socket, wait_s: float) -> None:
    """Serve until the process is killed."""
    poll = select.epoll()
    poll.register(sock, select.EPOLLIN)
    with tempfile.TemporaryFile() as file:
        position = 0
        while True:
            while not poll.poll(wait_s):
                pass
            position += os.pwrite(file.fileno(), sock.recv(len(REQUEST)), position)
            sock.send(ANSWER)


def request(sock: socket.socket) -> list[float]:
    """The duration of each round trip, sorted."""
    took = []
    due = time.perf_counter()
    for _ in range(COUNT):
        due += PERIOD_S
        time.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        sock.send(REQUEST)
        sock.recv(len(ANSWER))
        took.append(time.perf_counter() - began)
    return sorted(took[UNCOUNTED:])


def round_trips(wait_s: float, is_beside: bool, is_ordinary: bool) -> tuple[float, float]:
    """p50 and p99 in µs. The client has a processor of its own choice, or the server's."""
    one, other = _connected()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            if is_beside:
                os.sched_setaffinity(0, {min(PROCESSORS)})
            serve(other, wait_s)
        os._exit(0)
    try:
        if not is_ordinary:
            with contextlib.suppress(PermissionError):
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        if is_beside:
            os.sched_setaffinity(0, {min(PROCESSORS)})
            os.sched_setaffinity(0, PROCESSORS)
        took = request(one)
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        one.close()
        other.close()
    return took[len(took) // 2] * 1e6, took[len(took) * 99 // 100] * 1e6


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    for sock in (one, other):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


ROWS: tuple[tuple[str, Callable[[], tuple[float, float]]], ...] = (
    ("it sleeps where the system has it", lambda: round_trips(1.0, is_beside=False, is_ordinary=False)),
    ("it sleeps where requests come", lambda: round_trips(1.0, is_beside=True, is_ordinary=False)),
    ("it stays awake", lambda: round_trips(0.0, is_beside=False, is_ordinary=False)),
    ("an ordinary client, and it sleeps anywhere", lambda: round_trips(1.0, is_beside=False, is_ordinary=True)),
    ("an ordinary client, and it sleeps beside it", lambda: round_trips(1.0, is_beside=True, is_ordinary=True)),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="the best counts (5)")
    options = parser.parse_args()
    print(
        f"{Path(__file__).name}: best of {options.rounds} rounds of {COUNT - UNCOUNTED} (all of them in brackets), µs"
    )
    rounds = [[measure() for _, measure in ROWS] for _ in range(options.rounds)]
    for number, (name, _) in enumerate(ROWS):
        halves, tails = (sorted(each[number][which] for each in rounds) for which in (0, 1))
        shown = (f"{found[0]:>6.0f} ({found[0]:.0f}–{found[-1]:.0f})" for found in (halves, tails))
        print(f"{name:<46}" + "   ".join(f"{key} {text}" for key, text in zip(("p50", "p99"), shown, strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
