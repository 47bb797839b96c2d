"""Finds JSON decimals that do not fit the declared scale.

Spark rounds `1.239` to a DECIMAL(10,2) silently. A declared scale means exact amounts, so such a record is refused. To
detect the rounding, the same fields are read once more as text, and both are compared as 64-bit floats: a value that
was not rounded always has the same float as its text. A rounded value has another one, unless the difference is after
its sixteenth digit.
"""

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructField, StructType


def texts_of(kind: DataType) -> DataType | None:
    """The type with only its decimals left, as text; None if it has none."""
    if isinstance(kind, DecimalType):
        return StringType()
    if isinstance(kind, ArrayType):
        inner = texts_of(kind.elementType)
        return None if inner is None else ArrayType(inner)
    if isinstance(kind, MapType):
        inner = texts_of(kind.valueType)
        return None if inner is None else MapType(kind.keyType, inner)
    if isinstance(kind, StructType):
        found = [(field.name, texts_of(field.dataType)) for field in kind.fields]
        fields = [StructField(name, inner) for name, inner in found if inner is not None]
        return StructType(fields) if fields else None
    return None


def is_rounded(value: Column, text: Column, kind: DataType) -> Column:
    """Whether a decimal of the value differs from its text. `text` is of the type `texts_of(kind)`."""
    if isinstance(kind, DecimalType):
        plain: Any = F.replace(text, F.lit(","), F.lit(""))  # "1,000.5" is a number to Spark's JSON reader
        return value.isNotNull() & ~value.cast("double").eqNullSafe(plain.try_cast("double"))
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        each = F.zip_with(value, text, lambda one, other: is_rounded(one, other, inner))
        return F.coalesce(F.exists(each, lambda one: one), F.lit(False))
    if isinstance(kind, MapType):
        return is_rounded(F.map_values(value), F.map_values(text), ArrayType(kind.valueType))
    assert isinstance(kind, StructType), "only what has decimals is asked"
    found = F.lit(False)
    for field in kind.fields:
        if texts_of(field.dataType) is not None:
            found = found | is_rounded(value[field.name], text[field.name], field.dataType)
    return F.coalesce(found, F.lit(False))
