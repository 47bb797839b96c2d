"""Whatever happens to nodes, a transaction over several of them is seen whole and once, or not at all (T1, T4, T7).

Writers of both generations commit and abort, while nodes are killed, stopped, cut off and come back, one at a time: no
promise covers more. Each request is put again until it is answered, as clients do it; sequences and epochs see to it
that this changes nothing. Chance decides what happens, with a seed that is printed when it goes wrong.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import trio
from support.broker_cluster import Cluster, running_cluster
from support.cluster_client import Routed, seen, with_topic
from support.serving import ask
from support.transaction_requests import Refused, Writer, fetch

from trioka.protocol.messages.list_transactions import ListTransactionsRequest

PATIENCE_S = 150.0
DISTURBANCES = 4
WRITERS = 4
PARTITIONS = 3
IS_OVER = ("Empty", "CompleteCommit", "CompleteAbort")


class RecordCodec:
    """What each transaction wrote, and the outcome that its writer saw."""

    def __init__(self) -> None:
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.unknown: set[bytes] = set()


async def write(routed: Routed, number: int, random: Random, ledger: RecordCodec, goes_on: Callable[[], bool]) -> None:
    writer = Writer(routed.ask, f"writer-{number}", generation=1 + number % 2)
    await writer.init()
    count = 0
    while goes_on():
        count += 1
        value = b"%d-%d" % (number, count)
        try:
            for index in range(PARTITIONS):
                await writer.write(value, index=index)
            if random.random() < 0.7:
                await writer.commit()
                ledger.committed.add(value)
            else:
                await writer.abort()
                ledger.aborted.add(value)
        except Refused:  # a producer that is fenced, or must abort, restarts; what it wrote may be either
            ledger.unknown.add(value)
            await writer.init()
            writer.sequences.clear()


async def disturb(cluster: Cluster, random: Random) -> None:
    """One node at a time; the next when all is as it was."""
    for _ in range(DISTURBANCES):
        node = random.choice(sorted(cluster.brokers))
        what = random.choice(("kill", "stop", "cut"))
        if what == "cut":
            cluster.isolate(node)
            await trio.sleep(random.uniform(0.0, 2.5))
            cluster.heal()
        else:
            await (cluster.kill if what == "kill" else cluster.stop)(node)
            await trio.sleep(random.uniform(0.0, 1.0))
            await cluster.start(node)
        await cluster.until(lambda: is_whole(cluster))


def is_whole(cluster: Cluster) -> bool:
    return all(
        broker.alive == {1, 2, 3} and all(len(p.isr) == len(p.replicas) for _, p in broker.metadata.topics.partitions())
        for broker in cluster.brokers.values()
    )


async def until_all_is_over(cluster: Cluster) -> None:
    requested = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    while True:
        answers = [await ask(broker, requested, 0) for broker in cluster.brokers.values()]
        states = [each.transaction_state for answer in answers for each in answer.transaction_states]
        if not any(answer.error_code for answer in answers) and all(state in IS_OVER for state in states):
            return
        await trio.sleep(0.05)


@pytest.mark.parametrize("seed", [11])
def test_a_transaction_is_seen_whole_and_once_or_not_at_all(seed: int, tmp_path: Path) -> None:
    async def test() -> None:
        random, ledger, is_disturbed = Random(seed), RecordCodec(), True
        with trio.fail_after(PATIENCE_S):
            async with running_cluster(tmp_path) as cluster:
                routed = await with_topic(cluster)
                async with trio.open_nursery() as nursery:
                    for number in range(WRITERS):
                        nursery.start_soon(write, routed, number, random, ledger, lambda: is_disturbed)
                    await disturb(cluster, random)
                    is_disturbed = False
                await until_all_is_over(cluster)
                for index in range(PARTITIONS):
                    found = Counter(await seen(routed, index))
                    assert ledger.committed <= set(found), f"lost with seed {seed}"
                    assert max(found.values(), default=1) == 1, f"twice with seed {seed}"
                    assert set(found) <= ledger.committed | ledger.unknown, f"aborted and seen with seed {seed}"
                    (result,) = (await routed.ask(fetch("t", index), 12)).responses[0].partitions
                    assert result.last_stable_offset == result.high_watermark, f"a transaction hangs with seed {seed}"
                wholes = [set(await seen(routed, index)) & ledger.unknown for index in range(PARTITIONS)]
                assert all(each == wholes[0] for each in wholes), f"half a transaction with seed {seed}"
        assert ledger.committed and ledger.aborted

    trio.run(test)
