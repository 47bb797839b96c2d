"""Chaos on real processes: three `trioka serve`, third-party clients, and faults that a seed chooses.

    make chaos                                                100 kills, 30 pauses, 30 partitions, 20 stops
    python tests/chaos/run.py --kills 5 --partitions 3 --seed 7
    python tests/chaos/run.py --kills 5 --security mtls       nodes and clients present certificates
    make chaos ARGS=--planted                                 does the run detect a broker with a planted fault?

Nodes have network namespaces and disks of their own where that is allowed (root, or users who may have namespaces), and
are on loopback behind proxies elsewhere. After each fault the cluster must become whole again, with every replica in
sync and every client making progress. At the end the history checker checks the clients' operations, everything is read
once more, and the replicas are compared byte by byte.

The last line is the summary. The exit code is 1 if anything was lost, duplicated or reordered, if the checker found
anything else, or if the cluster did not heal; then the history, the logs and the data are kept in a folder.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the packages of tests/, not this folder's modules

from chaos.clients import Load
from chaos.events import KINDS, Faults, carry_out, schedule
from chaos.load import GROUPS, KEYS, PARTITIONS
from chaos.network import are_namespaces_allowed, new_network, unshare_command
from chaos.node import MISTAKES
from chaos.nodes import NUMBERS, NodeEnded, Nodes
from chaos.security import ADMIN, LOAD, PLAINTEXT, SASL_PLAINTEXT
from chaos.security import KINDS as SECURITY
from chaos.verdict import SHOWN, Verdict, differences, judged
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # public, and not marked as such
from history.operations import History

HEAL_S: Final = 180.0  # a cluster that is not whole by then does not heal
GO_ON_S: Final = 180.0  # a client without progress for this long has failed
END_S: Final = 300.0
CHECK_INTERVAL_S: Final = 0.1
CALM_S: Final = (0.2, 1.5)  # between the healing and the next fault
STILL_S: Final = 1.0  # a log that has not grown for so long is at its end
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHOWN_CHARS: Final = 100  # of the last repair
REST_S: Final = 0.08  # of a writer, on average, between two operations
INSIDE: Final = "TRIOKA_CHAOS_INSIDE"  # set in the namespaces


class NotHealed(Exception):
    """The awaited condition, and why it did not hold."""


class RunOptions(NamedTuple):
    counts: Mapping[str, int]
    seed: int
    rest_s: float = REST_S
    mistake: str | None = None
    security: str = PLAINTEXT
    is_quiet: bool = False
    is_kept: bool = False  # also if all was well


class Run:
    def __init__(self, options: RunOptions, folder: Path, *, has_namespaces: bool) -> None:
        self.options = options
        self.network = new_network(NUMBERS, has_namespaces=has_namespaces)
        is_plain = not options.counts.get("slow")
        self.nodes = Nodes(
            folder,
            self.network,
            has_mounts=has_namespaces,
            is_plain=is_plain,
            mistake=options.mistake,
            security=options.security,
        )
        self.load = Load(self.nodes.access(LOAD), options.seed, rest_s=options.rest_s)
        self.done: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.healed_s: list[float] = []
        self.went_on_s: list[float] = []
        self.history = History()
        self.verdict = Verdict()

    def close(self) -> None:
        for worker in self.load.workers:
            worker.is_over.set()
        self.nodes.close()
        self.network.close()

    def carry_out(self) -> None:
        """Raises NotHealed, or any other failure; `verdict` receives the findings at the end."""
        began = time.monotonic()
        self.nodes.start()
        self.wait_whole()
        whole = time.monotonic() - began
        self._create_topics()
        self.load.start()
        self._wait_going_on(dict.fromkeys(self.load.counts(), 0))
        took = time.monotonic() - began
        self.say(f"{self.network.name}; whole after {whole:.1f} s, under load after {took:.1f} s")
        kinds = schedule(dict(self.options.counts), Random(self.options.seed))
        for number, kind in enumerate(kinds, 1):
            if not self.load.failures:  # the history may show what ended a client
                self._one(number, len(kinds), kind)
        self._judge()

    def _one(self, number: int, of: int, kind: str) -> None:
        random = Random(f"{self.options.seed} {number}")
        fault = Faults(self.nodes, random).new(kind)
        carry_out(fault)
        undone = time.monotonic()
        try:
            mended = self.wait_whole()
            self.healed_s.append(time.monotonic() - undone)
            counts = self.load.counts()
            stuck = self._wait_going_on(counts)
            self.went_on_s.append(time.monotonic() - undone)
        except (NotHealed, NodeEnded) as error:
            raise type(error)(f"after {number}/{of}, {fault.what} for {fault.lasts_s:.1f} s: {error}") from None
        self.done[kind] += 1
        times = f"whole after {self.healed_s[-1]:.1f} s{mended}, all go on after {self.went_on_s[-1]:.1f} s{stuck}"
        self.say(f"{number}/{of} {fault.what} for {fault.lasts_s:.1f} s: {times}")
        time.sleep(random.uniform(*CALM_S))

    # -- waiting -------------------------------------------------------------------------------------------------------

    def wait_whole(self) -> str:
        """Returns the last repair, in words."""
        until = time.monotonic() + HEAL_S
        last = ""
        while reasons := self.nodes.trouble():
            last = f" (last: {reasons[0][:SHOWN_CHARS]})"
            if time.monotonic() > until:
                raise NotHealed(f"the cluster is not whole after {HEAL_S:.0f} s: {'; '.join(reasons[:8])}")
            time.sleep(CHECK_INTERVAL_S)
        return last

    def _wait_going_on(self, before: Mapping[str, int]) -> str:
        """Returns, in words, which clients were the last to go on."""
        last: list[str] = []
        until = time.monotonic() + GO_ON_S
        while stuck := [name for name, count in self.load.counts().items() if count <= before[name]]:
            if self.load.failures:
                break
            last = stuck
            if time.monotonic() > until:
                raise NotHealed(f"these clients do not go on within {GO_ON_S:.0f} s: {', '.join(stuck)}")
            self.nodes.check()
            time.sleep(CHECK_INTERVAL_S)
        return f" (last: {', '.join(last)})" if last else ""

    def _create_topics(self) -> None:
        """And the rules of the load."""
        client = AdminClient(dict(self.nodes.access(ADMIN).librdkafka))
        if rules := self.nodes.security.rules():
            for ruled in client.create_acls(rules, request_timeout=HEAL_S).values():
                ruled.result(HEAL_S)
        wanted = [NewTopic(topic, partitions, len(NUMBERS)) for topic, partitions in PARTITIONS.items()]
        for made in client.create_topics(wanted, operation_timeout=HEAL_S, request_timeout=HEAL_S).values():
            made.result(HEAL_S)
        self.wait_whole()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        stuck = self.load.stop(self.load.writers, END_S)
        if stuck:
            raise NotHealed(f"these clients do not come to an end: {', '.join(stuck)}")
        found = self.load.judge(END_S)
        self.load.stop(self.load.readers, END_S)
        self._wait_same_length()
        self.nodes.stop()
        self.history = self.load.journal.history()
        self.verdict = judged(self.history, found, GROUPS)
        parted = differences({node: self.nodes.data_of(node) for node in NUMBERS}, sorted(KEYS))
        self.verdict.others += len(parted) + len(self.load.failures)
        self.verdict.words += [*parted, *self.load.failures]

    def _wait_same_length(self) -> None:
        """After all writers have ended, the followers fetch the rest. Coordinators may still write the end of a
        transaction; one that stops before that leaves the markers to its successor, while other nodes stop."""
        until = time.monotonic() + HEAL_S
        before: dict[int, list[int]] = {}
        while True:
            lengths = {node: self._lengths(node) for node in NUMBERS}
            if lengths == before and len({tuple(each) for each in lengths.values()}) == 1:
                return
            if time.monotonic() > until:
                raise NotHealed(f"the replicas do not become equal: {lengths}")
            before = lengths
            time.sleep(STILL_S)

    def _lengths(self, node: int) -> list[int]:
        data = self.nodes.data_of(node)
        names = sorted(KEYS) + [each.name for each in sorted(data.glob(f"{TRANSACTIONS_TOPIC}-*"))]
        return [sum(log.stat().st_size for log in (data / name).glob("*.log")) for name in names]

    # -- words ---------------------------------------------------------------------------------------------------------

    def say(self, words: str) -> None:
        if not self.options.is_quiet:
            print(words, flush=True)

    def summary(self) -> str:
        done, verdict = self.done, self.verdict
        return (
            f"kills {done['kill']}, pauses {done['pause']}, partitions {done['partition']}, stops {done['stop']}, "
            f"full disks {done['full']}, slow disks {done['slow']} · acked {verdict.acked}, lost {verdict.lost}, "
            f"duplicated {verdict.duplicated}, reordered {verdict.reordered}, other anomalies {verdict.others} · "
            f"whole again after {_middle(self.healed_s)}, clients after {_middle(self.went_on_s)} · "
            f"seed {self.options.seed}" + (f", {self.options.security}" if self.options.security != PLAINTEXT else "")
        )

    def keep(self, kept: Path) -> None:
        """Keeps the files that help to find a cause."""
        self.nodes.keep(kept)
        with (kept / "history.jsonl").open("w") as file:
            for each in self.load.journal.history().operations:
                steps = [[type(step).__name__, *map(str, step)] for step in each.steps]
                row = [each.index, each.process, each.outcome.value, each.began, each.ended, steps]
                file.write(json.dumps(row) + "\n")
        (kept / "anomalies.txt").write_text("\n".join(self.verdict.words) + "\n")


def _middle(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.1f} s (at most {max(times):.1f})" if times else "-"


def one_run(options: RunOptions, *, has_namespaces: bool) -> Verdict | str:
    """The findings; or a sentence on why the run did not complete."""
    with tempfile.TemporaryDirectory(prefix="trioka-chaos-", ignore_cleanup_errors=True) as folder:
        run = Run(options, Path(folder), has_namespaces=has_namespaces)
        trouble: str | None = None
        try:
            run.carry_out()
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
        except BaseException:
            run.close()
            raise
        is_bad = trouble is not None or not run.verdict.is_good
        if options.is_kept or (is_bad and options.mistake is None):
            kept = Path(tempfile.mkdtemp(prefix="trioka-chaos-kept-"))
            run.keep(kept)
            run.say(f"history, logs and data are kept in {kept}")
        run.close()
        for words in run.verdict.words[:SHOWN]:
            run.say(words)
        if trouble is not None:
            run.say(trouble)
        run.say(run.summary())
        return run.verdict if trouble is None else trouble


def planted(seed: int, *, has_namespaces: bool) -> int:
    """Every mistake must be found."""
    found = 0
    for name, mistake in MISTAKES.items():
        options = RunOptions(mistake.counts, seed, mistake=name, is_quiet=True)
        outcome = one_run(options, has_namespaces=has_namespaces)
        is_found = isinstance(outcome, Verdict) and bool(getattr(outcome, mistake.what))
        found += is_found
        result = outcome if isinstance(outcome, str) else f"{getattr(outcome, mistake.what)} {mistake.what}"
        print(f"{'found' if is_found else 'NOT FOUND'}: {name}: {result}", flush=True)
    print(f"{found}/{len(MISTAKES)}")
    return 0 if found == len(MISTAKES) else 1


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind, name in zip(KINDS, ("kills", "pauses", "partitions", "stops", "full-disks", "slow-disks"), strict=True):
        parser.add_argument(f"--{name}", dest=kind, type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=None, help="one is chosen and printed without it")
    parser.add_argument("--network", choices=["auto", "namespaces", "loopback"], default="auto")
    parser.add_argument("--security", choices=SECURITY, default=PLAINTEXT, help="of all listeners (default: plaintext)")
    parser.add_argument("--planted", action="store_true", help="look for planted mistakes instead")
    parser.add_argument("--keep", action="store_true", help="history, logs and data also of a good run")
    text = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C does: no processes remain
    is_inside = os.environ.get(INSIDE) == "1"
    if not is_inside and text.network != "loopback":
        if are_namespaces_allowed():
            command = [*unshare_command(), sys.executable, __file__, *words]
            os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})
        if text.network == "namespaces":
            parser.error("namespaces are not allowed here")
    seed = int.from_bytes(os.urandom(3)) if text.seed is None else text.seed
    if text.planted:
        return planted(seed, has_namespaces=is_inside)
    if not is_inside and text.security not in (PLAINTEXT, SASL_PLAINTEXT):
        parser.error(f"--security {text.security} needs namespaces: the proxies of loopback cannot look into TLS")
    counts = {kind: getattr(text, kind) for kind in KINDS}
    outcome = one_run(RunOptions(counts, seed, security=text.security, is_kept=text.keep), has_namespaces=is_inside)
    return 0 if isinstance(outcome, Verdict) and outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
