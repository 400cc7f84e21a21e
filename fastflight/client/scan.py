"""`client.scan`: an answer as a lazy frame of Polars, which asks for the columns and the rows that a query needs.

Polars tells the frame what a query needs. The columns become `columns` of the request, where it has this key. The
number of rows of `head` becomes `limit_rows`, or the stream is cancelled after so many. Comparisons of `seq` and `time`
become the range of a recording. Polars filters the rows that arrive, so the request may bring more than the query
needs, but never less.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fastflight.client.answers import EPOCH
from fastflight.client.notebook import reading_bar
from fastflight.errors import RequestError
from fastflight.service.requests import MAX_SEQ, FleetFile, Recording, Request

if TYPE_CHECKING:
    import polars as pl

    from fastflight.client.connection import ServerConnection

# A comparison of a column with a value, as Polars names it, and the value: a number, or microseconds since 1970.
Comparison = tuple[str, str, int]
# Those that set a lower and an upper bound. The values are whole numbers.
LOWER, UPPER = ("Gt", "GtEq", "Eq"), ("Lt", "LtEq", "Eq")


def scan(connection: ServerConnection, request: Request) -> pl.LazyFrame:
    """Return a lazy frame of the rows of `request`. The server is asked for the columns now, for rows by each query."""
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ModuleNotFoundError as error:
        raise RequestError(
            "`scan` needs the package polars, which is not installed", hint="pip install polars"
        ) from error
    schema = pl.DataFrame(connection.info(request).schema.empty_table()).schema

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        asked = request
        if columns is not None:
            used = {*columns, *(() if predicate is None else predicate.meta.root_names())}
            asked = with_columns(asked, [name for name in schema if name in used], schema)
        if n_rows is not None:
            asked = with_limit(asked, n_rows)
        elif predicate is not None:
            asked = with_range(asked, comparisons(json.loads(predicate.meta.serialize(format="json"))))
        taken = 0
        with reading_bar(None) as report, connection.stream(asked).reporting(report) as stream:
            for batch in stream:
                frame = pl.DataFrame(batch)
                if n_rows is not None:
                    frame = frame.head(n_rows - taken)
                taken += frame.height
                if predicate is not None:
                    frame = frame.filter(predicate)
                yield frame if columns is None else frame.select(columns)
                if taken == n_rows:
                    return

    return register_io_source(read, schema=schema, validate_schema=True)


def with_columns(request: Request, names: list[str], all_names: Collection[str]) -> Request:
    """Return `request` for the columns `names` alone, if it can be asked for some of them."""
    if getattr(request, "record", None) is not None or "columns" not in type(request).model_fields:
        return request  # the columns of packed records are the names of their fields
    if isinstance(request, FleetFile):  # its first column cannot be asked for, and is always there
        first, *others = all_names
        names = [name for name in names if name != first] or others[:1]
    return request.model_copy(update={"columns": tuple(names)})


def with_limit(request: Request, rows: int) -> Request:
    """Return `request` for its first `rows` rows, as far as it has keys for that."""
    least = {"limit_rows": rows, "batch_rows": max(1, rows)}
    limits = {name: (getattr(request, name), value) for name, value in least.items() if hasattr(request, name)}
    return request.model_copy(
        update={name: value if old is None else min(old, value) for name, (old, value) in limits.items()}
    )


def with_range(request: Request, found: Iterable[Comparison]) -> Request:
    """Return `request` for the rows for which all comparisons can be true, if it is a recording by chunks.

    In the other formats a line continues in later chunks, so a range would cut its first and its last line.
    """
    if not isinstance(request, Recording) or request.format != "bytes" or request.limit_rows is not None:
        return request
    found = list(found)
    seq = _narrowed(found, "seq", request.from_seq, request.to_seq)
    begin, end = map(_microseconds, (request.from_time, request.to_time))
    time = _narrowed(found, "time", begin, None if end is None else end - 1)
    update: dict[str, Any] = {}
    if seq is not None:
        update |= {"from_seq": seq[0], "to_seq": seq[1]}
    if time is not None and request.since_seconds is None:
        update |= {"from_time": _time(time[0]), "to_time": _time(None if time[1] is None else time[1] + 1)}
    return request.model_copy(update=update)


def _narrowed(
    found: Sequence[Comparison], column: str, first: int | None, last: int | None
) -> tuple[int | None, int | None] | None:
    """Return the range from `first` to `last` narrowed by the comparisons of a column. None: it stays as it is.

    It also stays if nothing is left of it, which would be an error of the request, or if a value cannot be one.
    """
    firsts = [value + (operator == "Gt") for name, operator, value in found if name == column and operator in LOWER]
    lasts = [value - (operator == "Lt") for name, operator, value in found if name == column and operator in UPPER]
    first = max((value for value in (first, *firsts) if value is not None), default=None)
    last = min((value for value in (last, *lasts) if value is not None), default=None)
    bounds = [value for value in (first, last) if value is not None]
    if bounds != sorted(bounds) or not all(0 <= value < MAX_SEQ for value in bounds):
        return None
    return first, last


def comparisons(node: Any) -> Iterator[Comparison]:
    """Yield comparisons that are all true where a predicate is true. `node` is the predicate as Polars serializes it.

    Other parts of a predicate are left out. The form is not documented by Polars: if it changes, none is found.
    """
    match node:
        case {"BinaryExpr": {"op": "And", "left": left, "right": right}}:
            yield from comparisons(left)
            yield from comparisons(right)
        case {"BinaryExpr": {"op": str(operator), "left": {"Column": str(name)}, "right": right}}:
            for value in _value(right):
                yield name, operator, value
        case {
            "Function": {
                "input": [{"Column": str(name)}, low, high],
                "function": {"Boolean": {"IsBetween": _}},
            }
        }:
            for operator, bound in (("GtEq", low), ("LtEq", high)):
                for value in _value(bound):
                    yield name, operator, value


def _value(node: Any) -> Iterator[int]:
    """Yield the value of a literal of the types of `seq` and `time`, if it is one."""
    match node:
        case {"Literal": {"Scalar": {"UInt64": int(value)}}}:
            yield value
        case {"Literal": {"Scalar": {"Datetime": [int(value), "Microseconds", _]}}}:
            yield value


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else EPOCH + timedelta(microseconds=microseconds)
