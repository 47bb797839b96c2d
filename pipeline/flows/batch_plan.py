"""The rows of a flow over one batch of the records that it reads.

A flow without state that reads Kafka once is run as a stream of the plain records. For each batch, the analysed plan of
the flow is taken, with the batch in the place of the stream. So several flows can share one stream, and Spark reads,
decodes and filters in one pass, without columns that nothing needs.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..graph.analysis import is_kafka_stream, kafka_sources
from ..runner.state import state_of


def source_of(rows: DataFrame) -> Mapping[str, str] | None:
    """The options of the only source of the rows, if they have no state and read Kafka once; None for any others."""
    sources = kafka_sources(rows)
    return sources[0] if len(sources) == 1 and state_of(rows).can_be_made_anew else None


def plain_stream(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The records that these options of Spark's connector ask for."""
    return spark.readStream.format("kafka").options(**options).load()


def over_batch(rows: DataFrame, batch: DataFrame) -> DataFrame:
    """The rows of the flow, computed from a batch of its source instead of the stream."""
    jvm: Any = batch.sparkSession.sparkContext._jvm
    analysed: Any = rows._jdf
    given: Any = batch._jdf
    plan = _replaced(jvm, analysed.queryExecution().analyzed(), given.queryExecution().analyzed())
    session = batch.sparkSession
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def _replaced(jvm: Any, plan: Any, batch: Any) -> Any:
    if is_kafka_stream(plan):
        return _named_as(jvm, plan, batch)
    children = plan.children()
    if children.isEmpty():
        return plan
    made = [_replaced(jvm, children.apply(number), batch) for number in range(children.size())]
    return plan.withNewChildren(_seq(jvm, made))


def _named_as(jvm: Any, source: Any, batch: Any) -> Any:
    """The batch with the column ids of the source, by which the rest of the plan refers to them."""
    catalyst = jvm.org.apache.spark.sql.catalyst
    given = batch.output()
    columns = {str(given.apply(number).name()): given.apply(number) for number in range(given.size())}
    wanted = source.output()
    none = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    aliases = [
        catalyst.expressions.Alias(
            columns[str(one.name())], one.name(), one.exprId(), one.qualifier(), none, _seq(jvm, [])
        )
        for one in (wanted.apply(number) for number in range(wanted.size()))
    ]
    return catalyst.plans.logical.Project(_seq(jvm, aliases), batch)


def _seq(jvm: Any, values: list[Any]) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(values)
