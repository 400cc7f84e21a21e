"""The schemas that text files can be read with."""

from __future__ import annotations

import pyarrow as pa

from fastflight.errors import RequestError
from fastflight.tables.casting import is_castable
from fastflight.tables.codec import Layout
from fastflight.tables.schemas import MAX_LIST_VALUES, has_large_list, project, schema_from_names


def readable_schema(layout: Layout) -> pa.Schema:
    """Return the columns to read by a layout's schema. `RequestError` if its format cannot hold one of the types."""
    schema = project(schema_from_names(layout.schema or {}), layout.columns)
    cell, holds = ("CSV cell", is_castable) if layout.format == "csv" else ("JSON value", _is_json)
    for field in schema:
        if not holds(field.type):
            others = "a jsonl or arrow" if layout.format == "csv" else "an arrow or packed"
            raise RequestError(
                f"a {cell} can not hold {field.type}",
                where=f"schema.{field.name}",
                hint=f"Read it as string, or keep such columns in {others} file",
            )
        if has_large_list(field.type):
            raise RequestError(
                f"a list of objects with more than {MAX_LIST_VALUES} values",
                where=f"schema.{field.name}",
                hint="Read it as string, which is its JSON text, or name fewer of its fields",
            )
    return schema


def _is_json(type_: pa.DataType) -> bool:
    if pa.types.is_list(type_) or pa.types.is_struct(type_):
        return all(_is_json(type_.field(index).type) for index in range(type_.num_fields))
    unreadable = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_time, pa.types.is_duration)
    return is_castable(type_) and not any(test(type_) for test in unreadable)
