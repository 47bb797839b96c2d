"""Spark: topics in, tables out, with Spark's own Kafka connector. A Kafka client, not a part of the broker."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pipeline import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> object:
    """Load `Pipeline` on first use, because it imports a Kafka client and Spark, which the commands for jars, Java and
    help do not need.
    """
    if name == "Pipeline":
        from .pipeline import Pipeline

        return Pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
