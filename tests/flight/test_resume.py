"""Writes that broke off and go on, and reads from an offset, with plain `pyarrow.flight`."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.support.refusals import refused

from .conftest import BoardServer, command, sha256

CONTENT = bytes(range(256)) * 200
HALF = 20_000
FILE = {"type": "device.file", "device": "demo", "path": "/big.bin", "format": "raw"}
RESUMABLE = {**FILE, "resume": True, "sha256": sha256(CONTENT)}
SCHEMA = pa.schema([("offset", pa.int64()), ("data", pa.binary())])


def rows(content: bytes, start: int = 0, size: int = 4096) -> pa.Table:
    """`content` from `start` on, as rows."""
    offsets = list(range(start, len(content), size)) or [start]
    return pa.table([offsets, [content[offset : offset + size] for offset in offsets]], schema=SCHEMA)


def break_off(board: BoardServer, content: bytes, **request: Any) -> list[dict[str, Any]]:
    """Write `content` and give up when all of it is acknowledged; what the server said until then."""
    writer, reader = board.client.do_put(command(**request), SCHEMA)
    told = []
    try:
        writer.write_table(rows(content))
        while not told or told[-1].get("bytes", 0) < len(content):
            told.append(json.loads(reader.read().to_pybytes()))
        writer.write_metadata(b'{"abort": true}')
        writer.done_writing()
        with pytest.raises(flight.FlightUnavailableError, match="the client aborted the upload"):
            reader.read()
            writer.close()
    finally:
        with pytest.raises(pa.ArrowException):
            writer.close()
    return told


def kept(board: BoardServer, **request: Any) -> dict[str, Any]:
    """What the server says first: what is there of an earlier write."""
    writer, reader = board.client.do_put(command(**request), SCHEMA)
    told: dict[str, Any] = json.loads(reader.read().to_pybytes())["resume"]
    writer.write_metadata(b'{"abort": true}')
    writer.done_writing()
    with pytest.raises(pa.ArrowException):
        writer.close()
    return told


def test_a_write_goes_on_after_what_was_kept(board: BoardServer) -> None:
    told = break_off(board, CONTENT[:HALF], **RESUMABLE)
    assert told[0] == {"resume": {"bytes": 0, "algorithm": "", "digest": ""}}
    assert told[-1]["bytes"] == HALF
    assert not (board.folder / "big.bin").exists()

    put = board.put(rows(CONTENT, HALF), RESUMABLE)
    assert put.error is None
    assert put.acks[0] == {"resume": {"bytes": HALF, "algorithm": "sha256", "digest": sha256(CONTENT[:HALF])}}
    assert put.last["done"]
    assert (put.last["bytes"], put.last["sha256"]) == (len(CONTENT), sha256(CONTENT))
    assert (board.folder / "big.bin").read_bytes() == CONTENT


def test_a_write_that_may_not_be_resumed_leaves_nothing(board: BoardServer) -> None:
    before = {path.name for path in board.folder.iterdir()}
    break_off(board, CONTENT[:HALF], **FILE)
    assert {path.name for path in board.folder.iterdir()} == before
    assert kept(board, **RESUMABLE)["bytes"] == 0


def test_a_client_that_is_gone_leaves_what_it_had_stored(board: BoardServer) -> None:
    client = flight.connect(board.location)
    writer, reader = client.do_put(command(**RESUMABLE), SCHEMA)
    writer.write_table(rows(CONTENT[:HALF]))
    while json.loads(reader.read().to_pybytes()).get("bytes", 0) < HALF:
        pass
    client.close()
    del writer, reader
    assert kept(board, **RESUMABLE) == {
        "bytes": HALF,
        "algorithm": "sha256",
        "digest": sha256(CONTENT[:HALF]),
    }


@pytest.mark.parametrize("offset", [0, 1, 16_384, 40_000, len(CONTENT)])
def test_reading_begins_at_an_offset(board: BoardServer, offset: int) -> None:
    (board.folder / "big.bin").write_bytes(CONTENT)
    got = board.get(**FILE, offset=offset)
    assert got.error is None
    assert b"".join(got.table["data"].to_pylist()) == CONTENT[offset:]
    assert got.table["offset"].to_pylist()[:1] == ([offset] if offset < len(CONTENT) else [])
    assert got.trailer is not None
    assert (got.trailer["offset"], got.trailer["sha256"]) == (offset, sha256(CONTENT[offset:]))


@pytest.mark.parametrize(
    ("transfer", "deflate"), [("auto", None), ("binary", True), ("base64", False), ("literal", True)]
)
def test_bytes_cross_the_line_as_they_are_asked_to(board: BoardServer, transfer: str, deflate: bool | None) -> None:
    form = {"transfer": transfer, "deflate": deflate}
    put = board.put(rows(CONTENT), {**FILE, **form})
    assert put.error is None
    assert (board.folder / "big.bin").read_bytes() == CONTENT
    assert b"".join(board.table(**FILE, **form)["data"].to_pylist()) == CONTENT


def test_digests_of_a_part_and_of_a_tree(board: BoardServer) -> None:
    (board.folder / "data").mkdir()
    (board.folder / "data" / "a.bin").write_bytes(b"abc")
    (board.folder / "data" / ".fastflight-part").write_bytes(b"left behind")
    of = {"device": "demo", "path": "/data/a.bin"}
    assert board.act("file.hash", **of, limit=2) == [
        {"path": "/data/a.bin", "algorithm": "sha256", "digest": sha256(b"ab")}
    ]
    assert board.act("file.hash", device="demo", path="/data", recursive=True) == [
        {"path": "/data/a.bin", "size": 3, "algorithm": "sha256", "digest": sha256(b"abc")}
    ]
    with pytest.raises(pa.ArrowInvalid, match="limit: it cannot be combined with recursive"):
        board.act("file.hash", **of, limit=2, recursive=True)
    with refused(pa.ArrowInvalid, code="request", where="limit"):
        board.act("file.hash", **of, limit=-1)
