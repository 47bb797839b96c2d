"""`trioka run -- CMD`: a temporary broker for one command, for tests in any language and for CI without Docker.

The broker (with --nodes, a cluster) is `trioka dev` in a process of its own, on any free port and in memory.
KAFKA_BOOTSTRAP_SERVERS gives the command its address. The broker stops when the command ends, and the exit code is the
command's. The broker is not in the command's process group, so that Ctrl-C stops the command first; the kernel ends the
broker if this process is killed.
"""

import os
import re
import signal
import subprocess
import sys
from types import FrameType
from typing import Final

import click

from ..terminal.failure import CannotStart, Failure

STOP_SECONDS: Final = 40  # a cluster may take thirty seconds, if one of its nodes has to be killed
COMMAND_NOT_FOUND: Final = 127
SIGNALLED: Final = 128


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--nodes", type=int, default=1, metavar="N", help="the number of nodes; default 1")
@click.option("--topic", "topics", multiple=True, metavar="NAME:PARTS", help="create this topic first; repeatable")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="set a configuration key; repeatable")
@click.option("--host", metavar="HOST", help="the address to listen on; default 127.0.0.1")
@click.option("--advertise", metavar="HOST[:PORT]", help="the address that clients connect to; default --host")
@click.option("--data", metavar="DIR", help="keep the data in this directory; default: in memory")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD [ARG]...")
def run(
    nodes: int,
    topics: tuple[str, ...],
    pairs: tuple[str, ...],
    host: str | None,
    advertise: str | None,
    data: str | None,
    command: tuple[str, ...],
) -> int:
    """Runs CMD with a broker, whose address is in KAFKA_BOOTSTRAP_SERVERS."""
    signal.signal(signal.SIGTERM, _end)
    arguments = [f"--topic={topic}" for topic in topics] + [f"--set={pair}" for pair in pairs]
    given = {"host": host, "advertise": advertise, "data": data}
    arguments += [f"--{name}={value}" for name, value in given.items() if value]
    broker = subprocess.Popen(
        [sys.executable, "-m", "trioka", "dev", "--nodes", str(nodes), "--port", "0", "--http-port", "off", *arguments],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    try:
        return _beside(_address(broker), command)
    finally:
        broker.terminate()
        try:
            broker.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()


def _address(broker: "subprocess.Popen[str]") -> str:
    """The bootstrap servers of all nodes, read from the broker's output."""
    assert broker.stdout is not None
    found: list[str] = []
    for line in broker.stdout:
        found += re.findall(r"^ +(?:Kafka|Node \d+) +(\S+:\d+)", line)
        if found and line.lstrip().startswith("Try "):
            return ",".join(found)
    raise CannotStart("the broker did not start; the reason is above")


def _beside(address: str, command: tuple[str, ...]) -> int:
    try:
        process = subprocess.Popen(command, env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": address})
    except FileNotFoundError:
        raise Failure(f"there is no command '{command[0]}'", exit_code=COMMAND_NOT_FOUND) from None
    except OSError as error:
        raise Failure(f"'{command[0]}' cannot be run: {error.strerror}", exit_code=COMMAND_NOT_FOUND - 1) from None
    while True:
        try:
            code = process.wait()
            return code if code >= 0 else SIGNALLED - code
        except KeyboardInterrupt:
            continue  # the command received the signal too, and decides how to react
        except _Terminated:
            process.terminate()


class _Terminated(Exception):
    """A signal requests that this process ends."""


def _end(number: int, frame: FrameType | None) -> None:
    raise _Terminated


def die_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes

        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGTERM)
