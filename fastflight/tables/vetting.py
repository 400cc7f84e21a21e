"""Checks of schemas and batches that a peer sends.

`vet_schema` checks a schema before its first use, and `vet_batch` each batch before its values are used: its size,
every offset, length and UTF-8 (a bad offset crashes the process at its first use), and the size of its values written
out. A dictionary, runs and views may name one long value a million times: such a batch is small, but its rows as text
are not.

Arrow has read the message before. `ipc` has the checks that come before Arrow reads a stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import DataError
from fastflight.tables.bare import stored_type
from fastflight.tables.ipc import MAX_BODY_BYTES, MAX_MESSAGE_ROWS, MAX_METADATA_BYTES
from fastflight.tables.schemas import MAX_COLUMNS, MAX_DIGITS

# Columns and all that is nested in them. Arrow allows any number, and each costs some hundred bytes for each batch.
MAX_FIELDS = 4 * MAX_COLUMNS
# Arrow's own reader stops at 64; what walks a type here calls itself for each level, and so does what writes JSON.
MAX_DEPTH = 32
# pyarrow reads these types in a schema, and has no class for their values: it raises a KeyError at every column.
_UNMADE = frozenset((pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME))
# A view of a string or of bytes: its length, then the rest (Arrow columnar format, "Variable-size Binary View Layout").
_VIEW_WORDS = 4

_Test = Callable[[pa.DataType], bool]
_BINARY: tuple[_Test, ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def vet_schema(schema: pa.Schema, where: str) -> None:
    """`DataError` for a schema that no batch should be read by."""
    hint = "Send fewer columns, or flatter ones"
    if len(schema) > MAX_COLUMNS:
        raise DataError(f"{len(schema)} columns are too many: {MAX_COLUMNS} are allowed", where=where, hint=hint)
    types = list(itertools.islice(_nested(schema), MAX_FIELDS + 1))
    if len(types) > MAX_FIELDS:
        raise DataError(f"more than {MAX_FIELDS} fields, nested ones counted", where=where, hint=hint)
    if any(depth > MAX_DEPTH for _, depth in types):
        raise DataError(f"columns nest deeper than {MAX_DEPTH}", where=where, hint=hint)
    try:
        for named in (schema, *(type_ for type_, _ in types)):
            _names(named)
    except ValueError:
        raise DataError("the name of a column is not UTF-8", where=where, hint="Name it in UTF-8") from None
    for field in schema:
        unmade = next((type_ for type_, _ in _nested(pa.schema([field])) if type_.id in _UNMADE), None)
        if unmade is not None:
            raise DataError(
                f"column {field.name!r} has the type {unmade}, which is not supported",
                where=where,
                hint=f"Write it as {pa.month_day_nano_interval()}",
            )
    odd = next((type_ for type_, _ in types if pa.types.is_decimal(type_) and _is_beyond(type_)), None)
    if odd is not None:
        most = MAX_DIGITS[odd.bit_width]
        raise DataError(f"values of {odd} cannot be written", where=where, hint=f"Give it a scale of {-most} to {most}")
    for field in schema:
        if _hides(field.type):
            raise DataError(
                f"column {field.name!r} holds a dictionary or runs inside of {str(field.type)[:80]}",
                where=where,
                hint="Write it with plain values",
            )
    if (size := schema.serialize().size) > MAX_METADATA_BYTES:
        raise DataError(
            f"a schema of {size} bytes is too large: {MAX_METADATA_BYTES} are allowed",
            where=where,
            hint="Leave the metadata out",
        )


def vet_batch(batch: pa.RecordBatch) -> None:
    """`pa.ArrowInvalid`, or another `pa.ArrowException`, for a batch that must not be touched."""
    if batch.num_rows > MAX_MESSAGE_ROWS:
        raise pa.ArrowInvalid(f"it has {batch.num_rows} rows, more than {MAX_MESSAGE_ROWS}")
    if (size := batch.get_total_buffer_size()) > MAX_BODY_BYTES:
        raise pa.ArrowInvalid(f"it takes {size} bytes, more than {MAX_BODY_BYTES}: send smaller batches")
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
            _vet_values(column)
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(f"column {name!r}, {str(column.type)[:80]}: {error}") from None
    batch.validate(full=True)


def _nested(schema: pa.Schema) -> Iterator[tuple[pa.DataType, int]]:
    """Every type in a schema, with its depth. Without recursion, because the depth is not known yet."""
    waiting = [(field.type, 1) for field in schema]
    while waiting:
        type_, depth = waiting.pop()
        yield type_, depth
        if depth <= MAX_DEPTH:
            waiting += [(inner, depth + 1) for inner in _inner(type_)]


def _names(type_: pa.Schema | pa.DataType) -> list[str]:
    """What is called by name in it; `ValueError` for what is not UTF-8, which Arrow finds out when it is looked at."""
    if isinstance(type_, pa.Schema):
        return list(type_.names)
    zone = [type_.tz] if pa.types.is_timestamp(type_) else []
    return [*zone, *(type_.field(index).name for index in range(type_.num_fields))]


def _inner(type_: pa.DataType) -> list[pa.DataType]:
    if isinstance(type_, pa.BaseExtensionType):
        return [type_.storage_type]
    if pa.types.is_dictionary(type_):
        return [type_.value_type]
    return [type_.field(index).type for index in range(type_.num_fields)]


def _hides(type_: pa.DataType) -> bool:
    """What is encoded inside of something else, or encodes it: nobody could tell how much it is when written out."""
    if isinstance(type_, pa.BaseExtensionType):
        return _hides(type_.storage_type)
    if _is_encoded(type_):
        return bool(pa.types.is_nested(type_.value_type) or _is_encoded(type_.value_type))
    return any(_is_encoded(inner) or _hides(inner) for inner in _inner(type_))


def _is_beyond(decimal: pa.DataType) -> bool:
    return bool(abs(decimal.scale) > MAX_DIGITS[decimal.bit_width])


def _is_encoded(type_: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_))


def _vet_values(column: pa.Array) -> None:
    """Refuse a column whose values take more than its bytes. `column` is valid, so its values may be read."""
    type_ = column.type
    if len(column) > MAX_MESSAGE_ROWS:  # nulls inside of a list cost nothing
        raise pa.ArrowInvalid(f"a column holds {len(column)} values, more than {MAX_MESSAGE_ROWS}")
    if isinstance(type_, pa.BaseExtensionType):
        _vet_values(column.storage)
    elif pa.types.is_dictionary(type_):
        _vet_spread(column.dictionary, len(column))
    elif pa.types.is_run_end_encoded(type_):
        _vet_spread(column.values, len(column))
    elif pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        _vet_size(int(_view_lengths(column).sum(dtype=np.int64)))
    elif pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
        if (pc.sum(pc.list_value_length(column)).as_py() or 0) > len(column.values):
            raise pa.ArrowInvalid("rows of a list view share their values")
        _vet_values(column.values)
    elif pa.types.is_struct(type_) or pa.types.is_union(type_):
        for index in range(type_.num_fields):
            _vet_values(column.field(index))
    elif pa.types.is_map(type_):
        _vet_values(column.keys)
        _vet_values(column.items)
    elif pa.types.is_nested(type_):
        _vet_values(column.values)


def _vet_spread(values: pa.Array, rows: int) -> None:
    """Refuse `rows` values that may each be the longest."""
    if len(values) > MAX_MESSAGE_ROWS:
        raise pa.ArrowInvalid(f"a dictionary holds {len(values)} values, more than {MAX_MESSAGE_ROWS}")
    type_ = values.type
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        width = int(_view_lengths(values).max(initial=0))
    elif any(test(type_) for test in _BINARY):
        width = pc.max(pc.binary_length(values)).as_py() or 0
    else:
        width = 0 if pa.types.is_null(type_) else (stored_type(type_).bit_width + 7) // 8
    _vet_size(width * rows)


def _view_lengths(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The lengths of the values that are not null; the length of a null may be anything."""
    views = column.buffers()[1]
    if views is None or not len(column):
        return np.zeros(0, np.int32)
    # The buffer may be longer than its views, by any number of bytes.
    words = np.frombuffer(views, np.int32, _VIEW_WORDS * (column.offset + len(column)))[_VIEW_WORDS * column.offset :]
    lengths = words[::_VIEW_WORDS]
    return lengths[column.is_valid().to_numpy(zero_copy_only=False)] if column.null_count else lengths


def _vet_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise pa.ArrowInvalid(f"written out it would take {size} bytes, more than {MAX_BODY_BYTES}")
