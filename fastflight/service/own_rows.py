"""Turns the rows that an own source gives into record batches of one schema.

Rows are a record batch, a table, a DataFrame of pandas, or an object with `__arrow_c_stream__` or `__arrow_c_array__`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import structlog

from fastflight.errors import FastFlightError, SourceError
from fastflight.service.source import Batches

log = structlog.get_logger(__name__)

ROWS = "record batches, tables or DataFrames"


class BatchMaker:
    """Makes the batches of one answer. `schema` is the schema that all rows must have; None before the first rows."""

    def __init__(self, name: str, schema: pa.Schema | None = None) -> None:
        """`name` is what errors call the source."""
        self._name = name
        self.schema = schema

    def of(self, rows: Any) -> Batches:
        """Return the batches of `rows`. Raise `SourceError` if these are no rows, or have another schema."""
        batches = self._batches(rows)
        if self.schema is None:
            self.schema = batches.schema
        elif batches.schema is not self.schema and not batches.schema.equals(self.schema):
            raise self._changed(batches.schema)
        return [batches] if isinstance(batches, pa.RecordBatch) else list(batches.to_batches())

    def known_schema(self) -> pa.Schema:
        """Return the schema. Raise `SourceError` if there were no rows that could give it."""
        if self.schema is None:
            raise SourceError(
                "it gave no rows, so its columns are not known",
                where=self._name,
                hint="Give it a function `describe` that returns the schema, or yield a batch without rows",
            )
        return self.schema

    def refusal(self, given: Any, function: str) -> SourceError:
        """Return the error for a function that has not returned rows, nor an iterator of rows."""
        iterator = "an async iterator" if function == "aread" else "an iterator"
        return SourceError(f"{function} gave {type(given).__name__}, not {iterator} of {ROWS}", where=self._name)

    def _batches(self, rows: Any) -> pa.RecordBatch | pa.Table:
        if isinstance(rows, pa.RecordBatch | pa.Table):
            return rows
        try:
            if _is_pandas(rows):
                return self._of_pandas(rows)
            if hasattr(rows, "__arrow_c_array__"):
                return pa.record_batch(rows)
            if hasattr(rows, "__arrow_c_stream__"):
                return pa.table(rows)
        except (pa.ArrowException, TypeError, KeyError, ValueError) as error:
            raise SourceError(f"its DataFrame does not fit: {error}", where=self._name) from error
        except FastFlightError:
            raise
        except Exception as error:  # the object is the user's code, or that of a library
            log.error("source failed", source=self._name, rows=type(rows).__name__, exc_info=error)
            raise SourceError(
                f"its {type(rows).__name__} raised {type(error).__name__} when it was read",
                where=self._name,
                hint="See the server's log",
            ) from None
        raise SourceError(f"it gave {type(rows).__name__}, not {ROWS}", where=self._name)

    def _of_pandas(self, frame: Any) -> pa.Table:
        """Convert a DataFrame. Its index becomes a column only if it has a name.

        Later DataFrames are converted to the types of the first: a column without values has no type of its own.
        """
        index = [name for name in frame.index.names if name is not None]
        schema = self.schema if self.schema is not None and set(self.schema.names) == {*index, *frame.columns} else None
        table = pa.Table.from_pandas(frame, schema=schema, preserve_index=bool(index))
        return table.replace_schema_metadata(None if schema is None else schema.metadata)

    def _changed(self, schema: pa.Schema) -> SourceError:
        assert self.schema is not None
        old, new = ({f"{field.name}: {field.type}" for field in each} for each in (self.schema, schema))
        differences = ", ".join(sorted(old ^ new)[:4]) or "the order of the columns"
        return SourceError(
            f"it changed its columns within an answer ({differences})",
            where=self._name,
            hint="Give all rows of an answer the same columns and types",
        )


def is_rows(thing: Any) -> bool:
    """Whether this is rows itself, not an iterator of rows. A `RecordBatchReader` is an iterator."""
    if isinstance(thing, pa.RecordBatchReader):
        return False
    return _is_pandas(thing) or any(
        isinstance(thing, pa.RecordBatch | pa.Table) or hasattr(thing, f"__arrow_c_{form}__")
        for form in ("array", "stream")
    )


def _is_pandas(thing: Any) -> bool:
    return hasattr(thing, "columns") and hasattr(thing, "index") and hasattr(thing, "iloc")
