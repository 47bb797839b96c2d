"""Mistakes that only whole brokers show, planted in ours (`mutants/catalog.py` lists them with the others).

Whatever is changed anywhere in a broker changes what happens in a seed. So a few seeds are tried, from the one on at
which a mistake was found last; each is found within `ENOUGH_SEEDS`, and most within five.
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest
from simulation.simulators import run

from trioka.broker.coordinators.runtime import CoordinatorRuntime
from trioka.broker.handlers import produce
from trioka.broker.network.connection import PRODUCE_KEY, Call, Connection
from trioka.broker.replication.partitions import Replica
from trioka.cluster.security import authorizer, host_address
from trioka.storage.producers.producer_state import ProducerState

ENOUGH_SEEDS = 300
AT_ONCE = 12

Plant = Callable[[pytest.MonkeyPatch], None]


def live(seed: int, plant: Plant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for number in range(seed, seed + AT_ONCE):
            run("brokers", number)


def answers_at_once(patch: pytest.MonkeyPatch) -> None:
    """acks=all is answered when the leader has it."""
    patch.setattr(produce, "_is_settled", lambda each: True)


def answers_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """A reply that is ready leaves before those that are waited for."""

    def answered(self: Connection, call: Any, response: Any) -> None:
        if not self.is_closed:
            self._inflight.remove(call)
            self._replies.ready(call.reply_index, None)
            for _ in self._replies.take():
                pass
            self._send(self._pieces(call, response) or [])
            self.go_on()

    patch.setattr(Connection, "answered", answered)


def produces_pass_each_other(patch: pytest.MonkeyPatch) -> None:
    """A Produce is served while the one before it waits for the coordinator of its transaction."""
    started = Call.__init__

    def allows_pipelining(self: Call, connection: Connection, route: Any, correlation_id: int) -> None:
        started(self, connection, route, correlation_id)
        self.allows_pipelining = route.key == PRODUCE_KEY

    patch.setattr(Call, "__init__", allows_pipelining)


def shows_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """A leader takes what it has appended for committed."""

    def advance(self: Replica) -> bool:
        return self.log.advance_high_watermark(self.log.log_end_offset)

    patch.setattr(Replica, "advance", advance)


def forgets_producers(patch: pytest.MonkeyPatch) -> None:
    """Who follows does not look at sequences; when it leads, it knows no producer."""
    patch.setattr(ProducerState, "replay", lambda self, buffer, header: None)


def coordinators_answer_at_once(patch: pytest.MonkeyPatch) -> None:
    """A commit is acknowledged when the coordinator has written it down, and before it is replicated."""
    patch.setattr(CoordinatorRuntime, "_on_committed", lambda self, shard, then: then(None))


def shows_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """The last stable offset is the high watermark."""
    patch.setattr(ProducerState, "last_stable_offset", lambda self, high_watermark: high_watermark)


def envelopes_spell_as_python_does(patch: pytest.MonkeyPatch) -> None:
    """The address of a client whose request is passed on is spelled otherwise than that of one who comes straight, and
    rules are compared letter by letter."""
    patch.setattr(host_address, "from_bytes", lambda data: str(ip_address(data)))
    patch.setattr(authorizer, "is_address_of", lambda host, spelled: host == spelled)


MUTANTS: tuple[tuple[str, int, Callable[[int], None]], ...] = tuple(
    (name, seed, lambda number, plant=plant: live(number, plant))  # type: ignore[misc]
    for name, seed, plant in (
        ("acks=all is answered before it is replicated", 3, answers_at_once),
        ("answers leave in the order in which they are ready", 3, answers_out_of_order),
        ("a Produce passes one that is not appended yet", 0, produces_pass_each_other),
        ("what is appended is shown", 2, shows_what_is_not_committed),
        ("a new leader knows no producers", 0, forgets_producers),
        ("coordinators answer before it is replicated", 3, coordinators_answer_at_once),
        ("consumers see open transactions", 0, shows_open_transactions),
        ("forwarded addresses have a spelling of their own", 3, envelopes_spell_as_python_does),
    )
)
