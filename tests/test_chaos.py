"""The chaos harness: a short run of it, and that it would have noticed.

`make chaos` is the long run, and `make chaos ARGS=--planted` lets it find mistakes in brokers. Here a harness that
found nothing is asked what it would have found: histories and replicas that are wrong, and cuts that must cut.
"""

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from chaos.events import KINDS, schedule
from chaos.load import CLASSIC_GROUP as GROUP
from chaos.load import Done, Journal, runs
from chaos.network import Proxies
from chaos.node import MISTAKES, planted
from chaos.verdict import Verdict, count, differences, judged, ports_in_use
from history.operations import Assign, Commit, Key, Outcome, Read, Send, Step, Subscribe

from trioka.protocol import batch
from trioka.protocol.record import Record

PATIENCE_S = 60.0
RUN_S = 600.0
UNHEARD_S = 0.3
HARNESS = Path(__file__).with_name("chaos") / "run.py"
KEY = "plain-0"


def run_chaos(*words: str) -> str:
    done = subprocess.run([sys.executable, HARNESS, *words], capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout.splitlines()[-1]


# -- short runs --------------------------------------------------------------------------------------------------------


def test_nothing_is_lost_when_nodes_are_killed_and_cut_off() -> None:
    summary = run_chaos("--kills", "2", "--partitions", "1", "--seed", "50")
    assert summary.startswith("kills 2, pauses 0, partitions 1,")
    assert "lost 0, duplicated 0, reordered 0, other anomalies 0" in summary


def test_nothing_is_lost_where_no_namespaces_are_allowed() -> None:
    summary = run_chaos("--kills", "1", "--pauses", "1", "--partitions", "1", "--seed", "2", "--network", "loopback")
    assert summary.startswith("kills 1, pauses 1, partitions 1,")
    assert "lost 0, duplicated 0, reordered 0, other anomalies 0" in summary


def test_a_seed_chooses_the_same_faults_again() -> None:
    counts = dict.fromkeys(KINDS, 3)
    first, again, other = (schedule(counts, Random(seed)) for seed in (5, 5, 6))
    assert first == again != other
    assert sorted(first) == sorted(other) == sorted(3 * KINDS)


# -- what the verdict notices ------------------------------------------------------------------------------------------


def journal_of(*done: tuple[str, Outcome, list[Step]]) -> Journal:
    journal = Journal()
    for number, (process, outcome, steps) in enumerate(done):
        journal.done.append(Done(number + 0.5, process, outcome, number, tuple(steps)))
    return journal


def sent(*offsets: int | None) -> list[tuple[str, Outcome, list[Step]]]:
    return [("writer", Outcome.OK, [Send(KEY, b"writer:%d" % number, offset)]) for number, offset in enumerate(offsets)]


def verdict_of(done: list[tuple[str, Outcome, list[Step]]], found: list[tuple[int, bytes]]) -> Verdict:
    reads = [Read(KEY, offset, value) for offset, value in found]
    judge: list[tuple[str, Outcome, list[Step]]] = [("judge", Outcome.OK, [Assign(frozenset([KEY])), *reads])]
    return judged(journal_of(*done, *judge).history(), {KEY: reads}, [GROUP])


ALL_THERE = [(0, b"writer:0"), (1, b"writer:1"), (2, b"writer:2")]


def test_a_good_run_is_good() -> None:
    verdict = verdict_of(sent(0, 1, 2), ALL_THERE)
    assert verdict.is_good
    assert verdict.acked == 3


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (ALL_THERE[:2], "lost"),  # the last, which nothing is read behind
        ([ALL_THERE[0], ALL_THERE[2]], "lost"),
        ([*ALL_THERE, (3, b"writer:1")], "duplicated"),
        ([(0, b"writer:0"), (1, b"writer:2"), (2, b"writer:1")], "reordered"),
        ([*ALL_THERE, (3, b"nobody:7")], "others"),
    ],
)
def test_what_was_acknowledged_is_there_once_and_in_order(found: list[tuple[int, bytes]], what: str) -> None:
    verdict = verdict_of(sent(None, None, None), found)
    assert getattr(verdict, what) == 1
    assert not verdict.is_good
    assert verdict.words


def test_the_count_needs_no_checker() -> None:
    reads = [Read(KEY, 0, b"writer:2"), Read(KEY, 1, b"writer:0"), Read(KEY, 2, b"writer:0")]
    verdict = count(journal_of(*sent(0, 1, 2)).history(), {KEY: reads})
    assert (verdict.acked, verdict.lost, verdict.duplicated, verdict.reordered) == (3, 1, 1, 1)


def test_aborted_records_are_not_read() -> None:
    dealt: list[tuple[str, Outcome, list[Step]]] = [("dealer", Outcome.FAIL, [Send(KEY, b"dealer:1", 3)])]
    assert verdict_of([*sent(0, 1, 2), *dealt], ALL_THERE).is_good
    assert verdict_of([*sent(0, 1, 2), *dealt], [*ALL_THERE, (3, b"dealer:1")]).others == 1


def test_a_group_passes_nothing_over() -> None:
    reads = [Read(KEY, offset, value) for offset, value in ALL_THERE]

    def batch_for(second: list[Read]) -> list[str]:
        done: list[tuple[str, Outcome, list[Step]]] = [
            ("member-1 life 1", Outcome.OK, [Subscribe(frozenset([KEY])), reads[0], Commit(GROUP, KEY, 1)]),
            ("member-2 life 1", Outcome.OK, [Subscribe(frozenset([KEY])), *second, Commit(GROUP, KEY, 3)]),
        ]
        history = journal_of(*sent(0, 1, 2), *done).history()
        return [anomaly.what for anomaly in ports_in_use(history, {KEY: reads}, GROUP)]

    assert batch_for(reads[1:]) == []
    assert len(batch_for(reads[2:])) == 1


def test_an_unknown_outcome_may_be_as_late_as_the_end_of_the_run() -> None:
    journal = journal_of(("member", Outcome.INFO, [Commit(GROUP, KEY, 7)]), ("other", Outcome.OK, []))
    unknown, known = journal.history().operations
    assert (unknown.process, known.process) == ("member", "other")
    assert unknown.ended > known.ended == 1.5


def test_an_operation_is_as_many_as_it_has_ends() -> None:
    values = [(0, b"a", b""), (1, b"b", b""), (0, b"c", b""), (0, b"d", b"")]
    assert list(runs("plain", values, {0: 4, 1: None, 3: -1})) == [
        (Outcome.OK, [Send("plain-0", b"a", 4)]),
        (Outcome.INFO, [Send("plain-1", b"b", None), Send("plain-0", b"c", None)]),
        (Outcome.OK, [Send("plain-0", b"d", None)]),  # a duplicate of unknown offset
    ]


def log_with(folder: Path, key: Key, *segments: tuple[int, bytes]) -> None:
    (folder / key).mkdir(parents=True)
    for base_offset, value in segments:
        data = batch.build([Record(base_offset, 0, None, value)], base_offset=base_offset)
        (folder / key / f"{base_offset:020}.log").write_bytes(data)


def test_replicas_are_equal_to_the_byte(tmp_path: Path) -> None:
    for node, values in {1: (b"a", b"b"), 2: (b"a", b"b"), 3: (b"a", b"c"), 4: (b"a",)}.items():
        log_with(tmp_path / str(node), KEY, *enumerate(values))

    def told(*nodes: int) -> list[str]:
        return differences({node: tmp_path / str(node) for node in nodes}, [KEY])

    assert told(1, 2) == []
    assert told(1, 2, 3) == [f"{KEY}: the replicas part at [1, 1, 1]; their last batches are at {{1: 1, 2: 1, 3: 1}}"]
    assert told(1, 4) == [f"{KEY}: one is longer than another; their last batches are at {{1: 1, 4: 0}}"]


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistakes_of_make_chaos_can_still_be_planted(name: str) -> None:
    mistake = MISTAKES[name]
    found = importlib.util.find_spec(mistake.module)
    assert found is not None and found.origin is not None
    source = Path(found.origin).read_text()
    compile(planted(source, mistake), found.origin, "exec")
    assert hasattr(Verdict(), mistake.what)
    assert set(mistake.counts) <= set(KINDS)


# -- cuts --------------------------------------------------------------------------------------------------------------


@contextmanager
def two_nodes() -> Iterator[tuple[Proxies, socket.socket, socket.socket]]:
    """A proxy in front of node 2, a connection of node 1 to it, and the other end of that."""
    proxies = Proxies([1, 2])
    try:
        host, _, port = proxies.bound(2, "CONTROLLER").rpartition(":")
        with socket.create_server((host, int(port))) as server:
            http_server_host, _, http_server = proxies.advertised(2, "CONTROLLER").rpartition(":")
            with socket.create_connection((http_server_host, int(http_server)), PATIENCE_S) as caller:
                caller.sendall(first_words())
                server.settimeout(PATIENCE_S)
                callee, _ = server.accept()
                with callee:
                    callee.settimeout(PATIENCE_S)
                    assert received(callee, len(first_words())) == first_words()
                    yield proxies, caller, callee
    finally:
        proxies.close()


def first_words() -> bytes:
    """A request of node 1, as far as the proxy looks at it."""
    body = b"\0\1" + b"\0\2" + b"\0\0\0\1" + b"\0\x08trioka-1" + b"..."
    return len(body).to_bytes(4) + body


def received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(UNHEARD_S)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_S)


def test_a_way_that_is_cut_carries_nothing_until_it_is_healed_and_the_other_way_does() -> None:
    with two_nodes() as (proxies, caller, callee):
        caller.sendall(b"one")
        assert received(callee, 3) == b"one"
        proxies.cut([(1, 2)])
        callee.sendall(b"two")
        assert received(caller, 3) == b"two"  # the cut was made before this came through
        caller.sendall(b"three")
        assert is_silent(callee)
        proxies.heal()
        assert received(callee, 5) == b"three"
        proxies.cut([(2, 1)])
        caller.sendall(b"four")
        assert received(callee, 4) == b"four"
        callee.sendall(b"five")
        assert is_silent(caller)
        proxies.heal()
        assert received(caller, 4) == b"five"


def test_when_one_end_of_a_connection_goes_so_does_the_other() -> None:
    with two_nodes() as (_, caller, callee):
        callee.close()
        assert caller.recv(1) == b""
