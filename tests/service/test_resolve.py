"""Requests decoded once, and values with a lifetime."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest

from fastflight.errors import RequestError
from fastflight.service import Catalog, decode, encode
from fastflight.service.choices import Mode
from fastflight.service.resolve import MAX_KEPT_REQUEST_BYTES, RequestResolver
from fastflight_benchmark import mock


def asking() -> tuple[RequestResolver, Catalog]:
    catalog = Catalog()
    catalog.add(mock.SOURCE)
    return RequestResolver(catalog), catalog


@pytest.mark.parametrize("ticket", [b'{"type": "mock"}', b'{"type":"mock","mode":"sync"}', b' {"type": "mock"} '])
def test_the_same_bytes_are_decoded_once(ticket: bytes) -> None:
    asked, catalog = asking()
    first = asked.of(ticket)
    assert asked.of(bytes(bytearray(ticket))) is first
    assert first.request == decode(ticket, catalog)
    assert first.ticket == encode(first.request)
    assert first.source is mock.SOURCE


def test_a_long_request_is_not_kept() -> None:
    asked, _ = asking()
    long = b'{"type": "mock"' + b" " * MAX_KEPT_REQUEST_BYTES + b"}"
    assert asked.of(long) is not asked.of(long)
    assert asked.of(long) == asked.of(b'{"type": "mock"}')


def test_the_schema_that_is_sent_is_made_anew_when_the_source_gives_another_one() -> None:
    asked = asking()[0].of(b'{"type": "mock"}')
    number = pa.schema([("n", pa.int64())])
    first = asked.answer_schema(number, "sync")
    assert asked.answer_schema(pa.schema([("n", pa.int64())]), "sync") is first
    assert first.sent.metadata == {b"fastflight.request": asked.ticket, b"fastflight.path": b"sync"}
    assert first.row_bytes == 8
    others = [pa.schema([("n", pa.string())]), number.with_metadata({"of": "a file"}), number]
    for schema, path in zip(others, ("sync", "sync", "async"), strict=True):
        made = asked.answer_schema(schema, cast(Mode, path))
        assert made.sent.remove_metadata() == schema.remove_metadata()
        said = {**(schema.metadata or {}), b"fastflight.request": asked.ticket, b"fastflight.path": path.encode()}
        assert made.sent.metadata == said


@pytest.mark.parametrize("ticket", [b"", b"{}", b'{"type": "mick"}', b'{"type": "mock", "mode": "both"}'])
def test_what_is_refused_is_refused_each_time(ticket: bytes) -> None:
    asked, _ = asking()
    for _ in range(2):
        with pytest.raises(RequestError):
            asked.of(ticket)


def test_a_source_that_comes_later_is_found_though_its_request_was_refused_before() -> None:
    catalog = Catalog()
    asked = RequestResolver(catalog)
    with pytest.raises(RequestError):
        asked.of(b'{"type": "mock"}')
    catalog.add(mock.SOURCE)
    assert asked.of(b'{"type": "mock"}').source is mock.SOURCE


def test_paths_that_are_no_file_are_refused() -> None:
    asked, _ = asking()
    for path in ([], [b"demo"], [b"demo", b"\xff"], [b""] * 5000):
        with pytest.raises(RequestError):
            asked.of_path(path)
