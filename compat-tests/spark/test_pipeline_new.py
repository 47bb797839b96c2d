"""`trioka pipeline new` against a broker: the file that it writes is a pipeline."""

from pathlib import Path

import pytest
from trioka_process import TriokaProcess

from spark.pipelines import PipelineHarness
from trioka.pipeline import Pipeline
from trioka.pipeline.errors import InvalidPipeline
from trioka.pipeline.new_pipeline import SAMPLES, new_pipeline


def test_the_file_has_the_schema_of_the_newest_records_and_is_never_overwritten(
    broker: TriokaProcess, tmp_path: Path
) -> None:
    topics = PipelineHarness(folder=tmp_path, bootstrap=broker.bootstrap)
    old = [{"id": "text"}] * (SAMPLES * 2)
    topics.topic("new-orders", [*old, *({"id": number, "amount": number / 2} for number in range(SAMPLES))])
    file = tmp_path / "orders.toml"
    new_pipeline("new-orders", broker.bootstrap, file)
    plan = Pipeline.read(file).plan(asked=True)
    assert "JSON: id BIGINT, amount DOUBLE; needed: id, amount" in plan
    assert "new-orders (2 partitions)" in plan
    assert "Iceberg table trioka.main.new_orders" in plan
    with pytest.raises(InvalidPipeline, match="exists already"):
        new_pipeline("new-orders", broker.bootstrap, file)


def test_a_topic_without_json_or_without_records_gives_no_file(broker: TriokaProcess, tmp_path: Path) -> None:
    topics = PipelineHarness(folder=tmp_path, bootstrap=broker.bootstrap)
    topics.topic("new-bytes", [b"\0", b"x"])
    topics.topic("new-empty")
    for topic, sentence in (
        ("new-bytes", "no sample is a JSON object"),
        ("new-empty", "has no records"),
        ("new-byte", "did you mean new-bytes"),
    ):
        with pytest.raises(InvalidPipeline, match=sentence):
            new_pipeline(topic, broker.bootstrap, tmp_path / "none.toml")
    assert not (tmp_path / "none.toml").exists()
