"""`create_auto_cdc_flow`, as Spark 4.2 has it: a flow that applies changes to a streaming table.

dp.create_streaming_table("customers")
create_auto_cdc_flow(
    target="customers",
    source="customer_changes",              # a table or view of the pipeline
    keys=["id"],
    sequence_by="lsn",
    apply_as_deletes="op = 'd'",
    except_column_list=["op", "lsn"],
    stored_as_scd_type=2,                   # a history; 1, the default, keeps the newest row of each key
)
"""

from collections.abc import Sequence
from typing import Any, Literal

from pyspark.pipelines.source_code_location import get_caller_source_code_location
from pyspark.sql import Column, DataFrame, SparkSession

from ..graph.elements import Changes
from ..graph.registry import active_registry

Names = Sequence[str | Column]


def create_auto_cdc_flow(
    target: str,
    source: str,
    keys: Names,
    sequence_by: str | Column,
    apply_as_deletes: str | Column | None = None,
    column_list: Names | None = None,
    except_column_list: Names | None = None,
    stored_as_scd_type: Literal[1, 2, "1", "2"] | None = None,
    name: str | None = None,
) -> None:
    """Apply the changes that `source` streams to the streaming table `target`."""
    registry = active_registry()
    if registry is None:
        raise RuntimeError("create_auto_cdc_flow is called in a definition file of `trioka pipeline`.")
    if not keys:
        raise ValueError("create_auto_cdc_flow needs at least one key.")
    if column_list is not None and except_column_list is not None:
        raise ValueError("create_auto_cdc_flow takes column_list or except_column_list, not both.")
    if stored_as_scd_type not in (None, 1, 2, "1", "2"):
        raise ValueError(f"stored_as_scd_type is 1 or 2, not {stored_as_scd_type!r}.")
    changes = Changes(
        source=source,
        keys=_texts(keys, "keys"),
        sequence_by=sequence_by,
        apply_as_deletes=apply_as_deletes,
        columns=None if column_list is None else _texts(column_list, "column_list"),
        except_columns=_texts(except_column_list or (), "except_column_list"),
        scd_type=2 if str(stored_as_scd_type) == "2" else 1,
    )

    def read() -> DataFrame:
        return SparkSession.active().readStream.table(source)

    registry.register_changes(name or target, target, get_caller_source_code_location(stacklevel=1), read, changes)


def _texts(names: Names, argument: str) -> tuple[str, ...]:
    """The names of columns; a column is given by `col("name")` or as a text."""
    found = []
    for one in names:
        if isinstance(one, Column):
            jcolumn: Any = one
            one = str(jcolumn._jc.toString())
        if not isinstance(one, str) or not one.strip("`"):
            raise TypeError(f"{argument} has names of columns, not {one!r}.")
        found.append(one.strip("`"))
    return tuple(found)
