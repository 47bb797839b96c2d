"""A broker's own thread: it is bound and released, and nobody else is."""

import os
import subprocess
import sys

import pytest

from trioka.cli.node import own_thread

ALONE = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is only one processor")

BINDING = """
import os, threading
from trioka.cli.node.own_thread import OwnThread

usual = os.sched_getaffinity(0)
one = min(usual)
thread = OwnThread()
"""


def said_by(program: str) -> str:
    """In a process of its own, because it is bound."""
    command = [sys.executable, "-c", BINDING + program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@ALONE
def test_a_thread_is_bound_and_released_and_whom_it_starts_then_is_free() -> None:
    assert (
        said_by("""
assert thread.bind(one)
assert os.sched_getaffinity(0) == {one}
thread.release(one)
seen = []
started = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
started.start()
started.join()
print(os.sched_getaffinity(0) == usual, seen == [usual])
""")
        == "True True"
    )


@ALONE
def test_where_somebody_has_sent_the_process_meanwhile_it_stays() -> None:
    assert (
        said_by("""
other = max(usual)
assert thread.bind(one)
os.sched_setaffinity(0, {other})
thread.release(one)
print(os.sched_getaffinity(0) == {other}, thread.bind(one), os.sched_getaffinity(0) == {other})
""")
        == "True False True"
    ), "and where it may not run it is not bound"


@ALONE
def test_how_long_a_thread_waits_is_counted() -> None:
    assert (
        said_by("""
thread.bind(one)
before, turns = thread.waits()
children = []
for _ in range(2):
    pid = os.fork()
    if not pid:
        end = os.times().elapsed + 0.3
        while os.times().elapsed < end: pass
        os._exit(0)
    children.append(pid)
end = os.times().elapsed + 0.3
while os.times().elapsed < end: pass
for pid in children: os.waitpid(pid, 0)
print(thread.waits()[0] > before, thread.waits()[1] > turns)
""")
        == "True True"
    )


def test_who_has_one_processor_has_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert own_thread.own_thread() is None


def test_who_is_not_told_how_long_it_waits_roams(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", refuse)
    assert own_thread.own_thread() is None
