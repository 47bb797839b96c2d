"""Parts of a batch in a topic, written to a broker without Spark: whole, once, or not at all."""

from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition
from mutants.plant import assert_noticed
from pyspark.sql import Row
from trioka_process import TriokaProcess

from spark.pipelines import PipelineHarness
from trioka.pipeline.sources.brokers import Brokers
from trioka.pipeline.tables import topic_transactions
from trioka.pipeline.tables.topic_ledger import Entry, LedgerMismatch
from trioka.pipeline.tables.topic_transactions import Part, Truncated, ledger

ROWS = [Row(key=None, value=str(number).encode()) for number in range(5)]


def part(broker: TriokaProcess, topic: str, batch: int = 0, run: str = "run", counts: int = 5) -> Part:
    return Part(
        brokers=Brokers(bootstrap=broker.bootstrap),
        topic=topic,
        flow_id=f"flow-{topic}",
        run=run,
        batch=batch,
        counts={0: counts, 1: 0},
    )


def committed(broker: TriokaProcess, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", group_id=None, consumer_timeout_ms=1000
    )
    consumer.assign([TopicPartition(topic, one) for one in range(2)])
    consumer.seek_to_beginning()
    found = sorted(one.value for one in consumer)
    consumer.close()
    return found


@pytest.fixture
def target(broker: TriokaProcess, tmp_path: Path, topic: str) -> str:
    PipelineHarness(folder=tmp_path, bootstrap=broker.bootstrap).topic(f"parts-{topic}")
    return f"parts-{topic}"


def test_a_part_is_in_the_topic_once_with_its_entry_in_the_ledger(broker: TriokaProcess, target: str) -> None:
    for _ in range(2):
        part(broker, target).write(ROWS, 0)
    part(broker, target).write([], 1)
    assert committed(broker, target) == [b"0", b"1", b"2", b"3", b"4"]
    assert ledger(Brokers(bootstrap=broker.bootstrap), target, f"flow-{target}") == {
        0: Entry(run="run", next_batch=1),
        1: Entry(run="run", next_batch=1),
    }
    with pytest.raises(LedgerMismatch, match="another checkpoint"):
        part(broker, target, run="other").write(ROWS, 0)
    assert len(committed(broker, target)) == 5


def test_a_part_whose_rows_end_early_is_not_committed(broker: TriokaProcess, target: str) -> None:
    """PySpark ends the rows of a cancelled task as if there were no more."""
    with pytest.raises(Truncated, match="part 0 of batch 0 ended after 2 of 5 rows"):
        part(broker, target).write(ROWS[:2], 0)
    assert ledger(Brokers(bootstrap=broker.bootstrap), target, f"flow-{target}") == {}
    part(broker, target).write(ROWS, 0)
    assert len(committed(broker, target)) == 5


def test_a_planted_mistake_is_noticed(broker: TriokaProcess, target: str) -> None:
    def a_truncated_part_is_refused(module: object) -> None:
        made = module.Part(  # type: ignore[attr-defined]
            brokers=Brokers(bootstrap=broker.bootstrap),
            topic=target,
            flow_id=f"planted-{target}",
            run="r",
            batch=0,
            counts={0: 5},
        )
        with pytest.raises(module.Truncated):  # type: ignore[attr-defined]
            made.write(ROWS[:2], 0)

    right = "if failed or count != self._counts.get(part, 0):"
    assert_noticed(topic_transactions, right, "if failed:", a_truncated_part_is_refused)
