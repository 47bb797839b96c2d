"""Spark: topics in, tables out, with Spark's own Kafka connector. A Kafka client, not a part of the broker."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .changes.auto_cdc import create_auto_cdc_flow
    from .changes.debezium import debezium
    from .expectations.rules import (
        dead_letters,
        expect,
        expect_all,
        expect_all_or_drop,
        expect_all_or_fail,
        expect_or_drop,
        expect_or_fail,
    )
    from .graph_pipeline import GraphPipeline
    from .pipeline import Pipeline
    from .sources.read_topic import read_topic

__all__ = [
    "GraphPipeline",
    "Pipeline",
    "create_auto_cdc_flow",
    "dead_letters",
    "debezium",
    "expect",
    "expect_all",
    "expect_all_or_drop",
    "expect_all_or_fail",
    "expect_or_drop",
    "expect_or_fail",
    "read_topic",
]

_MODULES = {
    "GraphPipeline": "graph_pipeline",
    "Pipeline": "pipeline",
    "create_auto_cdc_flow": "changes.auto_cdc",
    "debezium": "changes.debezium",
    "read_topic": "sources.read_topic",
    **dict.fromkeys(
        (
            "dead_letters",
            "expect",
            "expect_all",
            "expect_all_or_drop",
            "expect_all_or_fail",
            "expect_or_drop",
            "expect_or_fail",
        ),
        "expectations.rules",
    ),
}


def __getattr__(name: str) -> object:
    """Load a name on first use, because some import a Kafka client and Spark, which the commands for jars, Java and
    help do not need.
    """
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
