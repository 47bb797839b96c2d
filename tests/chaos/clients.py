"""All clients of a chaos run: writers, clients that change topics, readers; and the final content of partitions."""

import time
from collections.abc import Sequence

from chaos.load import (
    ConsumerMember,
    FinalReader,
    Journal,
    Member,
    PipeliningSender,
    PythonSender,
    Sender,
    TransactionalWriter,
    Watcher,
    Worker,
)
from chaos.security import Access
from chaos.topics import Reassigner, TopicRecreator
from chaos.transactions import PipelinedTransactions
from history.operations import Key, Read


class Load:
    def __init__(self, access: Access, seed: int, *, rest_s: float) -> None:
        self.journal = Journal()
        self._access = access
        self._seed = seed
        self.writers: list[Worker] = [
            PipeliningSender("pipelining-1", access, self.journal, seed, rest_s),
            Sender("hasty-1", access, self.journal, seed, rest_s),
            PythonSender("python-1", access, self.journal, seed, rest_s),
            TransactionalWriter("dealer-1", access, self.journal, seed, rest_s),
            PipelinedTransactions("pipelined-1", access, self.journal, seed, rest_s),
            PipelinedTransactions("pipelined-2", access, self.journal, seed, rest_s),
            TopicRecreator("recreator-1", access, self.journal, seed, rest_s),
            Reassigner("reassigner-1", access, self.journal, seed, rest_s),
        ]
        self.readers: list[Worker] = [
            Watcher("watcher-1", access, self.journal, seed),
            Member("member-1", access, self.journal, seed),
            Member("member-2", access, self.journal, seed),
            ConsumerMember("member-3", access, self.journal, seed),
            ConsumerMember("member-4", access, self.journal, seed),
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
        """The errors that ended clients during the run."""
        return [f"{worker.name}: {worker.failure!r}" for worker in self.workers if worker.failure is not None]

    def stop(self, workers: Sequence[Worker], patience_s: float) -> list[str]:
        """Stops all clients; returns those that did not end."""
        for worker in workers:
            worker.is_over.set()
        until = time.monotonic() + patience_s
        for worker in workers:
            worker.join(max(0.0, until - time.monotonic()))
        return [worker.name for worker in workers if worker.is_alive()]

    def judge(self, patience_s: float) -> dict[Key, list[Read]]:
        """Everything that is there in the end. Raises TimeoutError if it cannot be read."""
        judge = FinalReader("judge", self._access, self.journal, self._seed)
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
