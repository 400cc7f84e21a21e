"""The type of a JSON column: that of its values if they agree, lists and structs included.

A column is `string` and holds JSON text if its values do not agree, nest deeper than `MAX_NESTING`, are objects of more
than `MAX_STRUCT_FIELDS` keys, or list objects of more than `MAX_LIST_VALUES` values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import DataError, RequestError
from fastflight.tables.column_kinds import learn_column
from fastflight.tables.kinds import (
    INFINITIES,
    MINUS_INFINITIES,
    NANS,
    NULLS,
    Kind,
    kind_of_time,
    kind_of_whole,
    type_of,
)
from fastflight.tables.schemas import MAX_COLUMNS, MAX_LIST_VALUES, values_in

# Deeper lists and structs become JSON text: clients cannot show them as columns anyway.
MAX_NESTING = 8
# Fields of one struct. An object with more is used as a mapping, and becomes JSON text.
MAX_STRUCT_FIELDS = 256

# Strings that are null in a column of numbers, times or truth values, and those that are numbers in one of numbers.
_SPELLED = frozenset(["", *NULLS])
_NUMBERS = frozenset([*NANS, *INFINITIES, *MINUS_INFINITIES])


class Number(float):
    """A JSON number whose text a double may not give back. `kind` says what it is."""

    def __new__(cls, text: str, kind: Kind) -> Number:
        number = super().__new__(cls, text)
        number.text, number.kind = text, kind
        return number

    text: str
    kind: Kind


@dataclass(slots=True)
class Shape:
    """What the values of a column are: their kinds, and the shapes of the items of lists and the fields of objects."""

    depth: int = 0
    kinds: Kind = Kind(0)
    items: Shape | None = None
    fields: dict[str, Shape] | None = None
    too_large: bool = False

    def add(self, value: Any) -> None:
        """Add a value that was parsed with `Number` for numbers whose text matters."""
        if value is None or self.too_large:
            return
        kind = type(value)
        if kind is str:
            if Kind.TEXT not in self.kinds:
                self.kinds |= self._kind_of_string(value)
        elif kind is int:
            self.kinds |= kind_of_whole(value)
        elif kind is float:
            self.kinds |= Kind.FLOAT if value - value == 0 else Kind.NOT_FINITE
        elif kind is bool:
            self.kinds |= Kind.BOOL
        elif kind is list:
            self._add_items(value)
        elif kind is dict:
            self._add_fields(value)
        else:
            self.kinds |= value.kind

    def _kind_of_string(self, text: str) -> Kind:
        if self.depth:
            return Kind.TEXT
        if text in _SPELLED:
            return Kind.SPELLED
        return Kind.NOT_FINITE if text in _NUMBERS else kind_of_time(text)

    def _add_items(self, values: list[Any]) -> None:
        if self.depth >= MAX_NESTING:
            self.too_large = True
            return
        self.items = self.items or Shape(self.depth + 1)
        for value in values:
            self.items.add(value)

    def _add_fields(self, values: dict[str, Any]) -> None:
        if self.depth >= MAX_NESTING:
            self.too_large = True
            return
        self.fields = {} if self.fields is None else self.fields
        for name, value in values.items():
            if name not in self.fields:
                if len(self.fields) == MAX_STRUCT_FIELDS:
                    self.too_large = True
                    return
                self.fields[name] = Shape(self.depth + 1)
            self.fields[name].add(value)

    def learn(self, column: pa.Array) -> bool:
        """Add the values of a column that was read as `type`, times as text. Returns False if it cannot add all."""
        if self.items is not None:
            return self.items.learn(column.flatten())
        if self.fields is not None:
            return all(map(Shape.learn, self.fields.values(), column.flatten()))
        if pa.types.is_integer(column.type):
            ends = [end for end in pc.min_max(column).as_py().values() if end is not None]
            self.kinds = reduce(or_, map(kind_of_whole, ends), self.kinds)
        is_text = Kind.TEXT in self.kinds
        return is_text or not pa.types.is_string(column.type) or learn_column(column, self.kinds) == self.kinds

    def type(self) -> pa.DataType:
        """Return the type of a column of these values."""
        return self._type() or pa.string()

    @property
    def is_json_text(self) -> bool:
        """Whether the column holds the JSON text of values that are no strings."""
        return self._type() is None

    def _type(self) -> pa.DataType | None:
        """Return the type; None if only their JSON text holds the values."""
        if self.too_large or bool(self.kinds) + (self.items is not None) + (self.fields is not None) > 1:
            return None
        if self.items is not None:
            inner = self.items._nested_type()
            fits = inner is not None and values_in(inner) <= MAX_LIST_VALUES
            return pa.list_(inner) if fits else None
        if self.fields is not None:
            named = [(name, shape._nested_type()) for name, shape in self.fields.items()]
            return pa.struct(named) if named and all(inner is not None for _, inner in named) else None
        if self.kinds == Kind.SPELLED:
            return pa.string()
        kind = type_of(self.kinds)
        others = self.kinds & ~(Kind.TEXT | Kind.DATE | Kind.MOMENT | Kind.ZONED | Kind.FINE | Kind.FAR | Kind.SPELLED)
        return None if kind == pa.string() and others else kind

    def _nested_type(self) -> pa.DataType | None:
        inner = self._type()
        return pa.string() if inner == pa.null() else inner

    def joined(self, other: Shape | None) -> Shape:
        """Return the shape of the values of both."""
        if other is None:
            return self
        whole = Shape(self.depth, self.kinds | other.kinds, too_large=self.too_large or other.too_large)
        whole.items = other.items if self.items is None else self.items.joined(other.items)
        if self.fields is None or other.fields is None:
            whole.fields = other.fields if self.fields is None else self.fields
        else:
            whole.fields = _together(self.fields, other.fields)
            whole.too_large = whole.too_large or len(whole.fields) > MAX_STRUCT_FIELDS
        return whole

    def as_json(self) -> dict[str, Any]:
        """Return the shape as a JSON object, for `from_json`."""
        return {
            **({"kinds": int(self.kinds)} if self.kinds else {}),
            **({"too_large": True} if self.too_large else {}),
            **({} if self.items is None else {"items": self.items.as_json()}),
            **({} if self.fields is None else {"fields": {name: each.as_json() for name, each in self.fields.items()}}),
        }

    @classmethod
    def from_json(cls, found: Any, where: str, depth: int = 0) -> Self:
        """Return the shape that a client has sent. `RequestError` if `as_json` does not return such a value."""
        error = RequestError(
            "not the kinds of a column", where=where, hint="Take them from the answer for another file"
        )
        if (
            not isinstance(found, dict)
            or depth > MAX_NESTING
            or found.keys() - {"kinds", "too_large", "items", "fields"}
        ):
            raise error
        kinds, fields = found.get("kinds", 0), found.get("fields")
        if type(kinds) is not int or not 0 <= kinds < 2 * max(Kind) or not isinstance(fields, dict | None):
            raise error
        if fields is not None and len(fields) > MAX_STRUCT_FIELDS:
            raise error
        shape = cls(depth, Kind(kinds), too_large=bool(found.get("too_large")))
        if "items" in found:
            shape.items = cls.from_json(found["items"], where, depth + 1)
        if fields is not None:
            shape.fields = {name: cls.from_json(each, where, depth + 1) for name, each in fields.items()}
        return shape


def shapes_from_json(found: Mapping[str, Any]) -> dict[str, Shape]:
    """Return the columns that a client has sent. `RequestError` names the one that is wrong."""
    return {name: Shape.from_json(each, f"kinds.{name}") for name, each in found.items()}


def joined(these: Mapping[str, Shape], others: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the columns of two files. Those of `these` come first."""
    columns = _together(these, others)
    if len(columns) > MAX_COLUMNS:
        raise DataError(f"more than {MAX_COLUMNS} different columns", hint="Name the columns to read in a schema")
    return columns


def _together(these: Mapping[str, Shape], others: Mapping[str, Shape]) -> dict[str, Shape]:
    whole = {name: shape.joined(others.get(name)) for name, shape in these.items()}
    return whole | {name: shape for name, shape in others.items() if name not in these}


def columns_of(shapes: Mapping[str, Shape], empty: pa.DataType | None = None) -> pa.Schema:
    """Return the schema of columns with these values. Columns without a value are `empty`, by default of type null."""
    types = {name: shape.type() for name, shape in shapes.items()}
    return pa.schema([(name, empty if empty and pa.types.is_null(type_) else type_) for name, type_ in types.items()])
