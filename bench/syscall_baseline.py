"""The raw limit of this machine: the cost of only the system calls of a Produce and of a Fetch.

    python bench/syscall_baseline.py                  all rows, best of five rounds
    python bench/syscall_baseline.py --rounds 1       a look

A bare loop receives frames and writes them to a file, or sends ranges of a file without a request; it examines no
bytes. A program in C would do the same, without a microsecond of Python per call. The client is another process, which
drops received bytes inside of the kernel, as the load generator does. CPU is that of the loop's own process. The
difference to the CPU-s/GB of `side_by_side.py` is the cost of a broker.
"""

import argparse
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
FILE_BYTES = 64 * MIB
REQUEST_BYTES, ANSWER_BYTES = 200, 60
ROUND_SECONDS = 0.7


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def with_client(client: Callable[[socket.socket], None], serve: Callable[[socket.socket], int]) -> tuple[float, int]:
    """The CPU that `serve` used, and its count. The client runs in a child process, until its socket is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")  # as trioka's listeners on loopback
        child = os.fork()
        if not child:
            try:
                with socket.create_connection(listener.getsockname()) as sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    client(sock)
            except OSError:
                pass  # the other side has closed the connection
            os._exit(0)
        accepted, _ = listener.accept()
        with accepted:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            began = cpu_seconds()
            count = serve(accepted)
            used = cpu_seconds() - began
        os.waitpid(child, 0)
    return used, count


def until_over() -> Callable[[], bool]:
    end = time.monotonic() + ROUND_SECONDS
    return lambda: time.monotonic() > end


def writing(size: int) -> float:
    """CPU-s/GB of receiving batches of this size and writing each over existing bytes."""
    data = bytes(size)

    def client(sock: socket.socket) -> None:
        while True:
            sock.sendall(data)

    with tempfile.TemporaryFile() as file:
        file.truncate(FILE_BYTES)
        buffer = memoryview(bytearray(size))

        def serve(sock: socket.socket) -> int:
            written = 0
            is_over = until_over()
            while not is_over():
                got = 0
                while got < size:
                    got += sock.recv_into(buffer[got:])
                os.pwrite(file.fileno(), buffer, written % (FILE_BYTES - size))
                written += size
            return written

        used, written = with_client(client, serve)
    return used / (written / 1e9)


def sending(size: int) -> float:
    """CPU-s/GB of sending ranges of this size with sendfile, each after the arrival of the last."""

    def client(sock: socket.socket) -> None:
        while True:
            sock.sendall(b"more")
            left = size
            while left:
                left -= _dropped(sock, left)

    with tempfile.TemporaryFile() as file:
        for _ in range(FILE_BYTES // (16 * KIB)):
            file.write(os.urandom(16 * KIB))
        file.flush()

        def serve(sock: socket.socket) -> int:
            sent, position = 0, 0
            is_over = until_over()
            while not is_over():
                sock.recv(4)
                end = position + size
                while position < end:
                    position += os.sendfile(sock.fileno(), file.fileno(), position, end - position)
                sent += size
                position = 0 if end + size > FILE_BYTES else end
            return sent

        used, sent = with_client(client, serve)
    return used / (sent / 1e9)


_NOWHERE = bytearray(16 * MIB)


def _dropped(sock: socket.socket, most: int) -> int:
    """Receive and drop bytes: for TCP, MSG_TRUNC drops as many as it counts."""
    got = sock.recv_into(_NOWHERE, most, socket.MSG_TRUNC)
    if not got:
        raise ConnectionResetError
    return got


def answering() -> float:
    """CPU-µs of a small request: received, written, answered."""
    request, answer = bytes(REQUEST_BYTES), bytes(ANSWER_BYTES)

    def client(sock: socket.socket) -> None:
        while True:
            sock.sendall(request)
            if not sock.recv(ANSWER_BYTES):
                return

    with tempfile.TemporaryFile() as file:
        buffer = memoryview(bytearray(REQUEST_BYTES))

        def serve(sock: socket.socket) -> int:
            count = 0
            is_over = until_over()
            while not is_over():
                sock.recv_into(buffer)
                os.pwrite(file.fileno(), buffer, count % 1000 * REQUEST_BYTES)
                sock.send(answer)
                count += 1
            return count

        used, count = with_client(client, serve)
    return used / count * 1e6


ROWS: tuple[tuple[str, str, Callable[[], float]], ...] = (
    ("receive and write, 16 KB", "CPU-s/GB", lambda: writing(16 * KIB)),
    ("receive and write, 64 KB", "CPU-s/GB", lambda: writing(64 * KIB)),
    ("receive and write, 1 MB", "CPU-s/GB", lambda: writing(MIB)),
    ("sendfile, 64 KB", "CPU-s/GB", lambda: sending(64 * KIB)),
    ("sendfile, 1 MB", "CPU-s/GB", lambda: sending(MIB)),
    ("sendfile, 8 MB", "CPU-s/GB", lambda: sending(8 * MIB)),
    ("receive, write and answer, 200 B", "CPU-µs", answering),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="the best counts (5)")
    options = parser.parse_args()
    print(f"{Path(__file__).name}: best of {options.rounds} rounds of {ROUND_SECONDS} s (all of them in brackets)")
    for name, unit, measure in ROWS:
        found = sorted(measure() for _ in range(options.rounds))
        print(f"{name:<36}{found[0]:>8.3f} {unit:<9} ({found[0]:.3f}–{found[-1]:.3f})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
