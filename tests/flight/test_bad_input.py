"""What a client can do wrong, by plain Flight: a typed error that helps, and a server that lives on.

`tests/corpus` has the tables of bad requests, and `tests/tables` what no format can hold. Here is what each call of
Flight makes of some of them.

Every error is looked at by `refused`: its class, what it says, and that it says nothing of the host. After each, the
same server answers the next request, and the file that was there is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.flight as flight
import pytest

from .conftest import BoardServer, command
from .refusal import DEVICE, FILE, INVALID_ARGUMENT, NOT_FOUND, OLD, TABLE, refused


@pytest.fixture
def board(board: BoardServer) -> Iterator[BoardServer]:
    """The board; after each test it must still answer, and hold `/old.csv` as it was."""
    (board.folder / "old.csv").write_bytes(OLD)
    yield board
    assert board.table(**FILE, path="/old.csv")["n"].to_pylist() == [1, 2, 3]
    assert (board.folder / "old.csv").read_bytes() == OLD
    assert not list(board.folder.rglob("*fastflight*"))


REQUESTS: dict[str, tuple[dict[str, Any], Any, tuple[str, ...]]] = {
    "unknown type": ({"type": "device.fil"}, INVALID_ARGUMENT, ("type: there is no request type 'device.fil'",
                     "Did you mean 'device.file'?")),
    "unknown device": ({**FILE, "device": "dem", "path": "/old.csv"}, NOT_FOUND,
                       ("dem: no such device", "Did you mean 'demo'?")),
    "missing file": ({**FILE, "path": "/none.csv"}, NOT_FOUND, ("demo:/none.csv: no such file", "List the folder")),
    "a file used as a folder": ({**FILE, "path": "/old.csv/x.csv"}, (DEVICE, NOT_FOUND), ("demo:/old.csv/x.csv",)),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "kind", "said"), REQUESTS.values(), ids=REQUESTS)
def test_requests_are_refused_before_and_while_they_are_read(
    board: BoardServer, request_: dict[str, Any], kind: Any, said: tuple[str, ...]
) -> None:
    refused(board.get(**request_).error, kind, *said)
    with pytest.raises(kind) as raised:
        board.client.get_flight_info(command(**request_))
    refused(raised.value, kind, *said)
    # From get_schema, pyarrow lets only these two statuses out without a traceback; the others are UNKNOWN.
    known = kind in (INVALID_ARGUMENT, NOT_FOUND)
    with pytest.raises(kind if known else pa.ArrowException) as raised:
        board.client.get_schema(command(**request_))
    refused(raised.value, kind if known else pa.ArrowException, *said)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "not JSON"), (b"\xff\xfe{}", "not UTF-8"), (b"x" * 10_000_000, "bytes are too many")],
    ids=["empty", "not UTF-8", "10 MB"],
)
def test_tickets_that_are_no_requests(board: BoardServer, content: bytes, said: str) -> None:
    descriptor = flight.FlightDescriptor.for_command(content)
    calls: list[Callable[[], Any]] = [
        lambda: board.client.do_get(flight.Ticket(content)).read_all(),
        lambda: board.client.get_flight_info(descriptor),
        lambda: board.client.get_schema(descriptor),
        lambda: write(board, descriptor, TABLE),
        lambda: list(board.client.do_action(flight.Action("file.stat", content or b"x"))),
    ]
    for call in calls:
        with pytest.raises(pa.ArrowException) as raised:
            call()
        refused(raised.value, INVALID_ARGUMENT, said)


def write(board: BoardServer, descriptor: flight.FlightDescriptor, table: pa.Table) -> None:
    """An upload that waits for its end."""
    writer, reader = board.client.do_put(descriptor, table.schema)
    try:
        writer.write_table(table)
        writer.done_writing()
        while reader.read() is not None:
            pass
    finally:
        writer.close()


NULLS = pa.table({"n": pa.array([1, None], pa.int64())})
NESTED = pa.table({"n": [[1], [2]]})
PACKED = {"format": "packed", "record": "<H", "columns": ["n"]}
WRITES: dict[str, tuple[dict[str, Any], pa.Table, Any, tuple[str, ...]]] = {
    "unknown device": ({"device": "dem", "path": "/new.csv"}, TABLE, NOT_FOUND, ("dem: no such device",)),
    "missing folder": ({"path": "/none/new.csv"}, TABLE, NOT_FOUND, ("demo:/none/new.csv: no such file or folder",)),
    "a folder": ({"path": "/", "format": "csv"}, TABLE, INVALID_ARGUMENT, ("root folder",)),
    "nested csv": ({"path": "/old.csv"}, NESTED, INVALID_ARGUMENT, ("n",)),
    "nulls in records": ({"path": "/old.csv", **PACKED}, NULLS, INVALID_ARGUMENT, ("n", "null")),
    "no bytes": ({"path": "/old.csv", "format": "raw"}, TABLE, INVALID_ARGUMENT, ("data",)),
    "a name of 256 characters": ({"path": "/" + "n" * 252 + ".csv"}, TABLE, DEVICE, ("name is too long",)),
    "something that takes nothing": ({"type": "device.listing"}, TABLE, INVALID_ARGUMENT, ("cannot be written",)),
}


@pytest.mark.parametrize(("keys", "table", "kind", "said"), WRITES.values(), ids=WRITES)
def test_writes_that_cannot_be_done(
    board: BoardServer, keys: dict[str, Any], table: pa.Table, kind: Any, said: tuple[str, ...]
) -> None:
    refused(board.put(table, {**FILE, **keys}, chunk=1000).error, kind, *said)
