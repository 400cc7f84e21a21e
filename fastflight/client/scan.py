"""`client.scan`: an answer as a lazy frame of Polars, which asks for the columns and the first rows that a query needs.

Polars tells the frame what a query needs. The columns become `columns` of the request, where it has this key. The
number of rows of `head` becomes `limit_rows`, or the stream is cancelled after so many. A filter
runs here, on the rows that arrive: give the range of a recording in its request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import TYPE_CHECKING

from fastflight.client.notebook import reading_bar
from fastflight.errors import RequestError
from fastflight.service.requests import FleetFile, Request

if TYPE_CHECKING:
    import polars as pl

    from fastflight.client.connection import ServerConnection


def scan(connection: ServerConnection, request: Request, *, ask_now: bool = True) -> pl.LazyFrame:
    """Return a lazy frame of the rows of `request`.

    The server is asked for rows by each query, and for the columns now, or by the first query without `ask_now`.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ModuleNotFoundError as error:
        raise RequestError(
            "`scan` needs the package polars, which is not installed", hint="pip install polars"
        ) from error

    @cache
    def columns_of() -> pl.Schema:
        return pl.DataFrame(connection.info(request).schema.empty_table()).schema

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted, schema = request, columns_of()
        if columns is not None:
            used = {*columns, *(() if predicate is None else predicate.meta.root_names())}
            wanted = with_columns(wanted, [name for name in schema if name in used], schema)
        if n_rows is not None:
            wanted = with_limit(wanted, n_rows)
        taken = 0
        with reading_bar(None) as report, connection.stream(wanted).reporting(report) as stream:
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

    return register_io_source(read, schema=columns_of() if ask_now else columns_of, validate_schema=True)


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
