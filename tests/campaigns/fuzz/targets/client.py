"""A server that says anything to the client: what it says is understood, or a documented error tells of it.

Rows with what is said beside them, acknowledgements of a write, results of actions, and errors with their descriptions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyarrow import flight

from fastflight.cli import get_rows, stats
from fastflight.client import answers
from fastflight.client.failure import typed
from fastflight.client.interaction import Seeking
from fastflight.client.parallel import combined
from fastflight.client.stream import RowStream, summary_line
from fastflight.client.upload import Upload
from fastflight.errors import FastFlightError
from fastflight_benchmark.mock import Mock
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target
from tests.campaigns.fuzz.varied_json import said

HERE = "grpc://127.0.0.1:1"
ABOUT_ROWS = (
    {"rows": 2, "bytes": 10, "sha256": "ab", "rejected": 1, "rejected_rows": [{"offset": 1, "reason": "x"}]},
    {"rows": 0, "duration_seconds": 0.5, "failed": [{"device": "a", "what": "gone", "hint": "Look"}]},
    {"gap": {"first": 1, "last": 2, "why": "damaged", "detail": "x", "from": None, "to": "2026-11-20T08:00:00+00:00"}},
    {"recording": "recording failed: no space"},
    {"rows": 2, "ended": "finished"},
)
ACKNOWLEDGEMENTS = (
    {"rows": 2, "bytes": 5},
    {"done": True, "rows": 2, "bytes": 5, "sha256": "ab"},
    {"resume": {"bytes": 3, "algorithm": "crc32", "digest": "0"}},
    {"refused": True},
)
RECORDED = {
    "name": "demo", "state": "kept", "rows": 1, "bytes": 2, "first_seq": 0, "next_seq": 1, "lost": 0, "failures": 0,
    "first_time": "2025-01-01T00:00:00+00:00", "last_time": None, "damage": ["a: byte 5"],
}  # fmt: skip
DEVICE = {"name": "demo", "url": "sim:", "open": True, "holder": None, "recording": "recording"}
ENTRY = {"path": "/a", "kind": "file", "size": 3, "modified": 1767323045.0}
FIGURES = {"fastflight_limit": [[{"limit": "server"}, 5]], "fastflight_streams_open": [[{"source": "mock"}, 1]]}
STATS = {"threads": {"all": 5}, "figures": FIGURES}
DESCRIBED = (
    {"code": "busy", "what": "in use", "where": "demo", "hint": "Wait", "holder": "a bridge"},
    {"code": "device.exception", "what": "it raised", "kind": "ValueError", "traceback": "T"},
    {"code": "exhausted", "what": "no more", "scope": "server", "limit": 5, "retry_after_seconds": 1.5},
)
# As Arrow makes them of what came.
ERRORS: tuple[Callable[[str, bytes], Exception], ...] = (
    flight.FlightServerError, flight.FlightUnavailableError, flight.FlightCancelledError, flight.FlightTimedOutError,
    flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError, flight.FlightInternalError,
    lambda text, _: pa.ArrowInvalid(text), lambda text, _: pa.ArrowKeyError(text),
    lambda text, _: pa.ArrowNotImplementedError(text), lambda text, _: OSError(text),
)  # fmt: skip
BATCHES = tuple(
    pa.RecordBatch.from_pylist(rows)
    for rows in (
        [{"path": "/a", "kind": "file", "size": 3, "modified": None}, {"path": "/b", "kind": "x", "size": -1}],
        [{"path": None, "kind": "file", "size": None, "modified": datetime(2025, 1, 1)}],
        [{"direction": "rx", "data": b"ok"}, {"direction": "tx", "data": b"x"}],
        [{"direction": None, "data": None}, {"direction": "rx", "data": b"x"}],
        [{"data": "text"}, {"data": "x"}],
        [{"path": 5, "kind": [], "size": 2**63 - 1, "modified": 7}],
    )
)


@contextmanager
def quiet() -> Iterator[None]:
    """What the command line says of rows that were rejected is not shown."""
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
        yield


def refusal(material: Material) -> Exception:
    """An error as Arrow raises it: the server's text, and its description beside it."""
    return material.pick(ERRORS)(material.piece().decode("utf-8", "replace"), said(material, DESCRIBED))


class AnswerOfBytes:
    """Reads as Flight's reader of an answer, or of acknowledgements."""

    def __init__(self, schema: pa.Schema, material: Material) -> None:
        self.schema = schema
        self._material = material

    def read_chunk(self) -> Any:
        if not self._material:
            raise StopIteration
        kind = self._material.byte()
        if kind >= 0xF0:
            raise refusal(self._material)
        data = next(each for each in BATCHES if each.schema == self.schema) if kind & 1 else None
        beside = pa.py_buffer(said(self._material, ABOUT_ROWS)) if kind & 2 or data is None else None
        return SimpleNamespace(data=data, app_metadata=beside)

    def read(self) -> pa.Buffer | None:
        if not self._material:
            return None
        if self._material.byte() >= 0xF0:
            raise refusal(self._material)
        return pa.py_buffer(said(self._material, ACKNOWLEDGEMENTS))

    def cancel(self) -> None:
        self._material.rest()


class Writer:
    """Takes what is written, or fails."""

    def __init__(self, failure: Exception | None) -> None:
        self._failure = failure

    def write_batch(self, batch: pa.RecordBatch) -> None:
        if self._failure is not None:
            raise self._failure

    def write_metadata(self, data: bytes) -> None:
        pass

    def done_writing(self) -> None:
        pass

    def close(self) -> None:
        if self._failure is not None:
            raise self._failure


def rows(material: Material) -> None:
    schema = material.pick(BATCHES).schema.with_metadata({"fastflight.path": material.take(2)})
    seeking, stream = Seeking(b"ok"), RowStream(AnswerOfBytes(schema.remove_metadata(), material), HERE)
    assert isinstance(stream.path, str)
    if material.byte() & 1:
        answers.entries_of(stream)
    else:
        for batch, _ in stream.pieces():
            if not seeking.found:
                seeking.feed(batch)
    assert all(0 <= gap.first and 0 <= gap.last for gap in stream.gaps)
    assert isinstance(combined([stream.summary, stream.summary, json.loads(said(material, ABOUT_ROWS[:1]))]), dict)
    summary_line(stream.summary)
    get_rows._report_failed({**stream.summary, "failed": ()})


def upload(material: Material) -> None:
    failure = refusal(material) if material.byte() >= 0xC0 else None
    client: Any = SimpleNamespace(do_put=lambda *_: (Writer(failure), AnswerOfBytes(BATCHES[0].schema, material)))
    reported: list[int] = []
    source = pa.Table.from_batches([BATCHES[0]])
    done = Upload(client, Mock(), source, HERE, lambda rows, size, _: reported.extend((rows, size))).run()
    assert done.rows in reported and all(type(each) is int for each in reported)


def results(material: Material) -> None:
    usual, made = material.pick(
        (
            (DEVICE, answers.device_of),
            (RECORDED, answers.recorded_of),
            (ENTRY, answers.entry_of),
            ({"algorithm": "sha256", "digest": "ab"}, answers.digest_of),
            (STATS, lambda told: stats.render(HERE, told, {})),
        )
    )
    made(answers.single(answers.results_of([said(material, (usual,))], HERE), "it", HERE))


def run(data: bytes) -> None:
    material = Material(data)
    kind = material.byte() % 4
    try:
        if kind == 3:
            raise typed(refusal(material), HERE)
        (rows, upload, results)[kind](material)
    except FastFlightError as error:
        assert isinstance(str(error), str)


TARGET = Target(
    run,
    seeds=(
        b"\x00\x00ab\x01\x01\x02\x00\x02\x05\x00",
        b"\x00\x02ab\x00\x01\x02\x02\x00\x02\x00\x00",
        b"\x00\x00ab\x00\x02\x02\x01\x10\x01\x02\x09",
        b"\x01\x00\x00\x00\x00\x00\x01\x00",
        b"\x01\x00\x00\x02\x00\x00\x00\x00\x00\x01\x01\x10\x01",
        b"\x01\xff\x00\x02no\x00\x00",
        *(bytes([2, which, 0, 0]) for which in range(5)),
        b"\x02\x01\x00\x02\x09\x01\x05\x0a\x01\x08",
        *(bytes([3, which, 4]) + b"a: b" + bytes([which, 0]) for which in range(11)),
        b"\x03\x00\x02xx\xf6",
    ),
    past=(
        b"\x06\t\x00uqqqqq" + b"\x8e" * 31,
        b"\x03\x06\x04a\xa2L\x8e\xf0\x19:\x9a\x06\x00",
        b"\x01\xe5\x00\x02\x00\x00\x88\x00\x00\x01\x01\xbe\xfe\x01",
        b"\xb0\x00\x02M\xcc\x00\x00\x00\x00\x01\x01\x10\x01",
        b"\x00\x00\xceb\x00\x02\x02\x01\x10\xcfA\x01\x02\x94\x82\x13U\t",
        b"\x0e\x02\x12a: b\x02}\xb4",
        b"\x04\x04\x99:\xea\xd9\x04\x00",
        b"\x82\x04aL>\x1fb\x07\x00",
        b"\x00\x00ab\x01\x01\x02\x00\x97\xb2\x05\x00",
    ),
    max_bytes=96,
    running=quiet,
)
