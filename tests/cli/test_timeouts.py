"""Servers that do not respond, or cannot carry out a request: every command ends within its timeout, with a
reason. A command runs in a process of its own, so that one which hangs fails only its own test."""

import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from mutants.plant import assert_noticed
from support.serving import HOST, LISTENER, broker_in_thread

from trioka.cli.client import time_budget as patience_module
from trioka.cli.commands import root
from trioka.cli.terminal.failure import Exit
from trioka.testing import Broker

ENOUGH_S = 120.0  # for a process on a busy machine; a command that hangs takes longer than any of this
AT_ONCE = 4

# Every command that asks a cluster, with what it needs.
STORE = "file://STORE"  # replaced by an empty directory

COMMANDS: dict[str, tuple[str, ...]] = {
    "topics list": (),
    "topics describe": ("t",),
    "topics create": ("t",),
    "topics alter": ("t", "--partitions", "2"),
    "topics delete": ("t", "-y"),
    "topics trim": ("t", "--all", "-y"),
    "groups list": (),
    "groups describe": ("g",),
    "groups reset-offsets": ("g", "--topic", "t", "--to-earliest", "--execute"),
    "groups undo": ("g", "-y"),
    "groups delete": ("g", "-y"),
    "lag": ("g",),
    "produce": ("t",),
    "consume": ("t",),
    "config show": ("--topic", "t"),
    "config get": ("retention.ms", "--topic", "t"),
    "config set": ("retention.ms=1", "--topic", "t"),
    "config unset": ("retention.ms", "--topic", "t"),
    "doctor": (),
    "doctor tls": (),
    "user list": (),
    "user create": ("ann",),
    "user passwd": ("ann",),
    "user delete": ("ann", "-y"),
    "acl list": (),
    "acl add": ("ann", "read", "topic:t"),
    "acl remove": ("--principal", "ann", "-y"),
    "acl can": ("ann", "read", "topic:t"),
    "quota list": (),
    "quota set": ("producer_byte_rate=1", "--user", "ann"),
    "quota remove": ("--user", "ann"),
    "token list": (),
    "token create": (),
    "token renew": ("t",),
    "token expire": ("t",),
    "tier status": (),
    "tier ls": ("t",),
    "tier verify": (STORE,),
    "tier sweep": (STORE,),
    "tier lifecycle": ("--print",),
    "bench": ("produce",),
    "cluster status": (),
    "cluster brokers": (),
    "cluster quorum": (),
    "cluster under-replicated": (),
    "cluster elect-leaders": ("t",),
    "cluster reassign": ("--auto", "-y"),
    "cluster drain": ("1", "-y"),
}


def asking() -> Iterator[str]:
    """The names of all commands that have a timeout."""
    context = click.Context(root)

    def walk(command: click.Command, name: str) -> Iterator[str]:
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                inner = command.get_command(context, each)
                assert inner is not None
                yield from walk(inner, f"{name} {each}".strip())
        if any(parameter.name == "timeout" for parameter in command.params):
            yield name

    names = ("topics", "groups", "lag", "produce", "consume", "config", "doctor", "bench", "cluster", "tier")
    for name in (*names, "user", "acl", "quota", "token"):
        found = root.get_command(context, name)
        assert found is not None
        yield from walk(found, name)


@contextmanager
def silent_server() -> Iterator[str]:
    """Accepts connections, and never says anything."""
    taken: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return

    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"{HOST}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    for each in taken:
        each.close()


def begin(*arguments: str, at: str, home: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": at, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    return subprocess.Popen(
        [sys.executable, "-m", "trioka", *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: "subprocess.Popen[str]", stdin: str = "a\nb\n") -> tuple[int, str]:
    """Its exit code, and its output. subprocess.TimeoutExpired if it hangs."""
    try:
        out, err = process.communicate(stdin, timeout=ENOUGH_S)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out + err


def run(*arguments: str, at: str, home: Path) -> tuple[int, str]:
    return end(begin(*arguments, at=at, home=home))


def flags_of(name: str, store: Path) -> list[str]:
    return [store.as_uri() if flag == STORE else flag for flag in COMMANDS[name]]


def test_every_command_that_asks_is_tried() -> None:
    assert set(asking()) == set(COMMANDS)


def test_every_command_ends_without_a_response(tmp_path: Path) -> None:
    names = list(COMMANDS)
    with silent_server() as at:
        for first in range(0, len(names), AT_ONCE):
            some = names[first : first + AT_ONCE]
            begun = [
                (
                    name,
                    begin(
                        *name.split(), *flags_of(name, tmp_path), "--timeout", "500ms", at=f"{at},{at}", home=tmp_path
                    ),
                )
                for name in some
            ]
            for name, process in begun:
                code, text = end(process)
                assert code in (Exit.UNREACHABLE, Exit.UNHEALTHY), f"{name}: {code}, {text}"
                assert "did not answer within" in text and "Traceback" not in text, f"{name}: {text}"


# A broker of which one of two directories has failed: what was in it has no leader.

OFFLINE: dict[str, tuple[str, ...]] = {
    "produce": ("t",),
    "consume": ("t", "-e"),
    "consume -g g": ("t", "-e"),
    "topics describe": ("t",),
    "topics trim": ("t", "--all", "-y"),
    "groups describe": ("g",),
    "lag": ("g",),
    "doctor": (),
    "cluster status": (),
}


def test_every_command_ends_though_a_directory_is_offline(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    places = {"log_dirs": ",".join(map(str, folders)), "metadata_log_dir": str(tmp_path / "metadata")}
    with broker_in_thread(tmp_path, None, **places) as broker:
        at = f"{HOST}:{broker.addresses[LISTENER][1]}"
        for arguments in (["topics", "create", "t"], ["produce", "t"], ["consume", "t", "-e", "-g", "g"]):
            code, text = run(*arguments, at=at, home=tmp_path)
            assert code == Exit.OK, text
        failed = next(each for each in broker.data_directories if (Path(each.path) / "t-0").exists())
        failed.volume.fail(OSError(errno.EIO, "the disk is gone"))
        for name, arguments_of in OFFLINE.items():
            code, text = run(*name.split(), *arguments_of, "--timeout", "2s", at=at, home=tmp_path)
            assert "Traceback" not in text, f"{name}: {text}"
            assert text.strip(), f"{name} gives no reason"
            if name.split()[0] in ("produce", "consume"):
                assert code == Exit.FAILED, f"{name}: {text}"


@pytest.mark.parametrize("api", ["InitProducerId", "Produce", "Metadata"])
def test_produce_ends_though_one_question_has_no_answer(tmp_path: Path, api: str) -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with broker.delay(api, by="1h", count=None):
            code, text = run("produce", "t", "--timeout", "2s", at=broker.bootstrap_servers, home=tmp_path)
    assert code in (Exit.FAILED, Exit.UNREACHABLE), text
    assert "within 2 s" in text or "not written" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("arguments", [["consume", "t", "-e"], ["consume", "t", "-e", "-g", "g"]])
def test_a_consumer_that_reads_to_an_end_ends_without_new_records(tmp_path: Path, arguments: list[str]) -> None:
    with Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", b"a")
        with broker.delay("Fetch", by="1h", count=None):
            code, text = run(*arguments, "--timeout", "2s", at=broker.bootstrap_servers, home=tmp_path)
    assert code == Exit.FAILED, text
    assert text.startswith("error: ") and "Traceback" not in text


# TimeoutBudget.


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def patience() -> ModuleType:
    return patience_module


def waited(patience: ModuleType, seconds: float) -> tuple[Any, Clock]:
    clock = Clock()
    made = patience.TimeoutBudget(10.0, clock)
    with made.waiting():
        clock.now_s += seconds
    return made, clock


def test_what_one_waits_the_others_do_not_have(patience: ModuleType) -> None:
    made, clock = waited(patience, 7.0)
    assert made.left_s == 3.0
    clock.now_s += 100.0  # while no request is under way
    assert made.left_s == 3.0
    with suppress(OSError), made.waiting():
        clock.now_s += 5.0
        raise OSError
    assert made.left_s == 0.0


def test_an_answer_restores_it(patience: ModuleType) -> None:
    made, _ = waited(patience, 9.0)
    made.restore()
    assert made.left_s == 10.0


def test_each_of_several_has_its_part(patience: ModuleType) -> None:
    made, clock = waited(patience, 4.0)
    with made.share(3):
        assert made.left_s == pytest.approx(2.0)
        with made.waiting():
            clock.now_s += 2.0
        assert made.left_s == 0.0
        with made.share(2):
            assert made.left_s == 0.0
    assert made.left_s == pytest.approx(4.0)
    with made.share(1):
        assert made.left_s == pytest.approx(4.0)


MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    ("self._left_s -= self._now() - began", "pass", test_what_one_waits_the_others_do_not_have),
    (
        "try:\n    yield\nfinally:\n    self._left_s -= self._now() - began",
        "yield\nif True:\n    self._left_s -= self._now() - began",
        test_what_one_waits_the_others_do_not_have,
    ),
    ("self._left_s = self.timeout_s", "pass", test_an_answer_restores_it),
    ("            self._reserve_s = before\n", "            pass\n", test_each_of_several_has_its_part),
    ("self.left_s * (1 - 1 / max(askers, 1))", "0", test_each_of_several_has_its_part),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(patience_module, right, wrong, rule)
