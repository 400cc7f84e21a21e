"""Checks schemas and batches that a peer sends.

Call `vet_schema` before the first use of a schema, and `vet_batch` for each batch before its values are used. It checks
the size of a batch, every offset, length and UTF-8 text (a bad offset crashes the process at its first use), and the
size of its values when written out. Dictionaries, runs and views can refer to one long value a million times: such a
batch is small, but its rows as text are not.

These checks apply after Arrow has read a message. `ipc` has the checks that come before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import DataError
from fastflight.tables.bare import plain_type
from fastflight.tables.ipc import MAX_BODY_BYTES, MAX_MESSAGE_ROWS, MAX_METADATA_BYTES
from fastflight.tables.schemas import MAX_COLUMNS, MAX_DIGITS

# Columns and the fields nested in them. Arrow allows any number, and each costs some hundred bytes in every batch.
MAX_FIELDS = 4 * MAX_COLUMNS
# Arrow's reader stops at 64 levels. The functions here and the JSON lines writer recurse once per level.
MAX_DEPTH = 32
# pyarrow accepts these types in a schema but has no class for their values: every access to a column is a KeyError.
_UNSUPPORTED = frozenset((pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME))
# Words of a string or binary view. The first is the length (Arrow columnar format, "Variable-size Binary View Layout").
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
    """Raise `DataError` for a schema that is too large, too deep, or holds types or names that cannot be handled."""
    for what, hint in _faults(schema):
        raise DataError(what, where=where, hint=hint)


def _faults(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a schema, and what to do. Later checks need the earlier ones, so the first counts."""
    hint = "Send fewer columns, or flatter ones"
    if len(schema) > MAX_COLUMNS:
        yield f"{len(schema)} columns are too many: {MAX_COLUMNS} are allowed", hint
    types = list(itertools.islice(_nested(schema), MAX_FIELDS + 1))
    if len(types) > MAX_FIELDS:
        yield f"more than {MAX_FIELDS} fields, nested ones counted", hint
    if any(depth > MAX_DEPTH for _, depth in types):
        yield f"columns nest deeper than {MAX_DEPTH}", hint
    if not all(map(_names_are_utf8, (schema, *(type_ for type_, _ in types)))):
        yield "the name of a column is not UTF-8", "Name it in UTF-8"
    for field in schema:
        for type_, _ in _nested(pa.schema([field])):
            if type_.id in _UNSUPPORTED:
                what = f"column {field.name!r} has the type {type_}, which is not supported"
                yield what, f"Write it as {pa.month_day_nano_interval()}"
            if pa.types.is_decimal(type_) and abs(type_.scale) > (most := MAX_DIGITS[type_.bit_width]):
                yield f"values of {type_} cannot be written", f"Give it a scale of {-most} to {most}"
        if _nests_encoding(field.type):
            what = f"column {field.name!r} holds a dictionary or runs inside of {str(field.type)[:80]}"
            yield what, "Write it with plain values"
    if (size := schema.serialize().size) > MAX_METADATA_BYTES:
        yield f"a schema of {size} bytes is too large: {MAX_METADATA_BYTES} are allowed", "Leave the metadata out"


def vet_batch(batch: pa.RecordBatch) -> None:
    """Raise `pa.ArrowInvalid`, or another `pa.ArrowException`, for a batch whose values must not be used."""
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
    """Yield every type in a schema, with its depth. Does not recurse, because the depth may be any."""
    waiting = [(field.type, 1) for field in schema]
    while waiting:
        type_, depth = waiting.pop()
        yield type_, depth
        if depth <= MAX_DEPTH:
            waiting += [(inner, depth + 1) for inner in _inner(type_)]


def _names_are_utf8(item: pa.Schema | pa.DataType) -> bool:
    """Whether all names in a schema or type, time zones included, are UTF-8. pyarrow decodes them only on access."""
    try:
        if isinstance(item, pa.Schema):
            return all(isinstance(name, str) for name in item.names)
        zone = item.tz if pa.types.is_timestamp(item) else None
        return isinstance(zone, str | None) and all(
            item.field(index).name is not None for index in range(item.num_fields)
        )
    except ValueError:
        return False


def _inner(type_: pa.DataType) -> list[pa.DataType]:
    if isinstance(type_, pa.BaseExtensionType):
        return [type_.storage_type]
    if pa.types.is_dictionary(type_):
        return [type_.value_type]
    return [type_.field(index).type for index in range(type_.num_fields)]


def _nests_encoding(type_: pa.DataType) -> bool:
    """Return whether a dictionary or run-end encoding is inside of a nested type, or encodes nested values.

    Nothing here can check how large such a column is when written out, so it is refused.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return _nests_encoding(type_.storage_type)
    if _is_encoded(type_):
        return bool(pa.types.is_nested(type_.value_type) or _is_encoded(type_.value_type))
    return any(_is_encoded(inner) or _nests_encoding(inner) for inner in _inner(type_))


def _is_encoded(type_: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_))


def _vet_values(column: pa.Array) -> None:
    """Refuse a column whose values take too much memory when written out. The caller has validated `column`."""
    type_ = column.type
    if len(column) > MAX_MESSAGE_ROWS:  # values of type null inside of a list take no bytes
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
    """Refuse a column of `rows` references to `values` if it could be too large when written out.

    The size is estimated as if every row referred to the longest value.
    """
    if len(values) > MAX_MESSAGE_ROWS:
        raise pa.ArrowInvalid(f"a dictionary holds {len(values)} values, more than {MAX_MESSAGE_ROWS}")
    type_ = values.type
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        width = int(_view_lengths(values).max(initial=0))
    elif any(test(type_) for test in _BINARY):
        width = pc.max(pc.binary_length(values)).as_py() or 0
    else:
        width = 0 if pa.types.is_null(type_) else (plain_type(type_).bit_width + 7) // 8
    _vet_size(width * rows)


def _view_lengths(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the lengths of the values that are not null. The stored length of a null is arbitrary."""
    views = column.buffers()[1]
    if views is None or not len(column):
        return np.zeros(0, np.int32)
    # The buffer may be longer than the views in it.
    words = np.frombuffer(views, np.int32, _VIEW_WORDS * (column.offset + len(column)))[_VIEW_WORDS * column.offset :]
    lengths = words[::_VIEW_WORDS]
    return lengths[column.is_valid().to_numpy(zero_copy_only=False)] if column.null_count else lengths


def _vet_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise pa.ArrowInvalid(f"written out it would take {size} bytes, more than {MAX_BODY_BYTES}")
