"""Spark: topics in, tables out, with Spark's own Kafka connector. A client of the wire, no part of a broker."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pipeline import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> object:
    """`Pipeline` is loaded when it is first asked for: with it come Kafka's client and Spark, which nobody needs who
    only wants a jar, a Java or the help of a command.
    """
    if name == "Pipeline":
        from .pipeline import Pipeline

        return Pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
