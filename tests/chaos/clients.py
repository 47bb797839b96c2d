"""All clients of a chaos run: what writes, what changes topics, what reads; and what partitions hold at the end."""

import time
from collections.abc import Sequence

from chaos.load import (
    ConsumerMember,
    Dealer,
    Journal,
    Judge,
    Member,
    PipeliningSender,
    PythonSender,
    Sender,
    Watcher,
    Worker,
)
from chaos.topics import Reassigner, TopicRecreator
from chaos.transactions import PipelinedTransactions
from history.operations import Key, Read


class Load:
    def __init__(self, servers: str, seed: int, *, rest_s: float) -> None:
        self.journal = Journal()
        self._servers = servers
        self._seed = seed
        self.writers: list[Worker] = [
            PipeliningSender("pipelining-1", servers, self.journal, seed, rest_s),
            Sender("hasty-1", servers, self.journal, seed, rest_s),
            PythonSender("python-1", servers, self.journal, seed, rest_s),
            Dealer("dealer-1", servers, self.journal, seed, rest_s),
            PipelinedTransactions("pipelined-1", servers, self.journal, seed, rest_s),
            PipelinedTransactions("pipelined-2", servers, self.journal, seed, rest_s),
            TopicRecreator("recreator-1", servers, self.journal, seed, rest_s),
            Reassigner("reassigner-1", servers, self.journal, seed, rest_s),
        ]
        self.readers: list[Worker] = [
            Watcher("watcher-1", servers, self.journal, seed),
            Member("member-1", servers, self.journal, seed),
            Member("member-2", servers, self.journal, seed),
            ConsumerMember("member-3", servers, self.journal, seed),
            ConsumerMember("member-4", servers, self.journal, seed),
        ]

    @property
    def workers(self) -> list[Worker]:
        return [*self.writers, *self.readers]

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def counts(self) -> dict[str, int]:
        return {worker.name: worker.count for worker in self.workers}

    @property
    def failures(self) -> list[str]:
        """What has ended clients that should have gone on."""
        return [f"{worker.name}: {worker.failure!r}" for worker in self.workers if worker.failure is not None]

    def stop(self, workers: Sequence[Worker], patience_s: float) -> list[str]:
        """Those that did not."""
        for worker in workers:
            worker.is_over.set()
        until = time.monotonic() + patience_s
        for worker in workers:
            worker.join(max(0.0, until - time.monotonic()))
        return [worker.name for worker in workers if worker.is_alive()]

    def judge(self, patience_s: float) -> dict[Key, list[Read]]:
        """Everything that is there in the end. Raises TimeoutError if it cannot be read."""
        judge = Judge("judge", self._servers, self.journal, self._seed)
        judge.open()
        until = time.monotonic() + patience_s
        try:
            while judge.behind:
                judge.work()
                if time.monotonic() > until:
                    raise TimeoutError(f"the end is not reached, which is at {judge.behind}")
        finally:
            judge.close()
        return judge.found
