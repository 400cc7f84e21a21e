"""Finds the types of a query's parameters, where the query tells them. DuckDB knows them only when they have values.

A parameter has the type of the columns that it is compared with, or that it is cast to; `limit` and `offset` take whole
numbers. Without such a place, or with several that differ, it is a text, which DuckDB converts. Clients such as JDBC's
driver take only values of the announced type, so numbers are announced as wide as they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

TEXT, WHOLE, REAL = pa.string(), pa.int64(), pa.float64()
# JDBC's driver 18.3.0 sends milliseconds, whatever the unit is.
TIME, TIME_WITHOUT_ZONE = pa.timestamp("ms", "UTC"), pa.timestamp("ms")
# Types of DuckDB, by the names that its parser gives.
CASTS = {
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), WHOLE
    ),
    **dict.fromkeys(("INT", "INT1", "INT2", "INT4", "INT8", "LONG", "SHORT"), WHOLE),
    **dict.fromkeys(("FLOAT", "REAL", "DOUBLE", "FLOAT4", "FLOAT8"), REAL),
    **dict.fromkeys(("BOOLEAN", "BOOL"), pa.bool_()),
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"), TIME),
    **dict.fromkeys(("TIMESTAMP", "DATETIME"), TIME_WITHOUT_ZONE),
    "DATE": pa.date32(),
}
# Names of operands in nodes of the parse tree.
_OPERANDS = {
    "COMPARISON": ("left", "right"),
    "BETWEEN": ("input", "lower", "upper"),
    "OPERATOR": ("children",),
}


def parameter_schema(
    names: Sequence[str], nodes: Iterable[Mapping[str, Any]], tables: Sequence[pa.Schema]
) -> pa.Schema:
    """Return a field for each of the parameters `names`, from a query's parse tree and the columns of its tables."""
    found: dict[str, set[pa.DataType]] = {name: set() for name in names}
    for node in nodes:
        for name, type_ in _places(node, tables):
            found[name].add(type_)
    return pa.schema([(name, found[name].pop() if len(found[name]) == 1 else TEXT) for name in names])


def _places(node: Mapping[str, Any], tables: Sequence[pa.Schema]) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the parameters in a node, and the type that their place has; nothing if that is not known."""
    kind = node.get("class")
    if node.get("type") == "LIMIT_MODIFIER":
        yield from ((name, WHOLE) for key in ("limit", "offset") if (name := _parameter(node.get(key))))
    elif kind == "CAST" and (name := _parameter(node.get("child"))):
        path = node["type_expr"].get("qualified_name", {}).get("path") or [node["type_expr"].get("type_name", "")]
        yield name, CASTS.get(str(path[-1]).upper(), TEXT)
    elif kind in _OPERANDS and (kind != "OPERATOR" or node.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN")):
        operands: list[Any] = []
        for key in _OPERANDS[kind]:
            value = node.get(key)
            operands += value if isinstance(value, list) else [value]
        types = {type_ for operand in operands for type_ in _column_types(operand, tables)}
        if len(types) == 1:
            (type_,) = types
            yield from ((name, type_) for operand in operands if (name := _parameter(operand)))


def _parameter(node: Any) -> str:
    """Return the name of the parameter that a node is; empty for another node."""
    is_parameter = isinstance(node, dict) and node.get("class") == "PARAMETER"
    return str(node["identifier"]) if is_parameter else ""


def _column_types(node: Any, tables: Sequence[pa.Schema]) -> Iterator[pa.DataType]:
    """Yield the types of the columns with the name that a node is."""
    if isinstance(node, dict) and node.get("class") == "COLUMN_REF":
        name = str(node["column_names"][-1]).lower()
        yield from (_wide(field.type) for table in tables for field in table if field.name.lower() == name)


def _wide(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(type_):
        return WHOLE
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return REAL
    if pa.types.is_timestamp(type_):
        return TIME if type_.tz else TIME_WITHOUT_ZONE
    return type_ if pa.types.is_boolean(type_) or pa.types.is_date(type_) else TEXT
