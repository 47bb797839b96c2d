"""The columns of a record while it is judged, and SQL that may fail on a value."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, SparkSession

from ..errors import InvalidPipeline, first_sentence

REASON = "kafka_refused"
# The metadata columns of the connector, besides the value.
METADATA = ("kafka_key", "kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp")
VALUE = "kafka_value"
MAX_REASON_CHARS = 1000


def attempted(spark: SparkSession, column: Column) -> Column:
    """Null for a row where the column cannot be computed: a cast, an overflow. Spark's own `try_` functions are built
    on this; only the JVM's interface can apply it to any expression.
    """
    jvm: Any = spark.sparkContext._jvm
    tried: Any = column
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(tried._jc))
    return Column(expressions.column(attempt))


@contextmanager
def sentences(key: str) -> Iterator[None]:
    """Convert Spark's errors in the user's SQL to problems of that key."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise InvalidPipeline(f"{key}: {first_sentence(error)}") from None
