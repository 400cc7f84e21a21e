"""Requests as bytes."""

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import RequestError
from fastflight.service import Catalog, decode, decode_path, encode
from fastflight.service.choices import MAX_REQUEST_BYTES
from fastflight.service.requests import (
    DeviceExec,
    DeviceFile,
    DeviceListing,
    DeviceSession,
    DeviceTree,
    Request,
)
from fastflight.service.wire import MAX_SHOWN_CHARACTERS
from fastflight_benchmark.mock import Mock
from tests.support.function_source import FunctionSource
from tests.support.refusals import refused

CATALOG = Catalog()
for each in (DeviceFile, DeviceTree, DeviceListing, DeviceExec, DeviceSession, Mock):
    CATALOG.add(FunctionSource(each))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return CATALOG


@pytest.mark.parametrize(
    "request_",
    [
        Mock(),
        Mock(mode="sync", rows_per_batch=5, delay_per_row=1e-6, variant="complex", total_rows=0),
        DeviceFile(device="d", path="/x", format="raw", transfer="base64", deflate=False, resume=True, sha256="0" * 64),
        DeviceTree(device="demo", path="/data", files=("a/b", "ü"), deflate=True),
        DeviceListing(device="demo", recursive=True),
        DeviceExec(device="demo", code="print('é\\n')", timeout=3),
        DeviceFile(device="a b'\"ü", path="/x.csv", schema_={"t": "int64", "a": "string"}, columns=("a", "t")),
    ],
    ids=lambda request: request.type,
)
def test_what_was_encoded_is_decoded(catalog: Catalog, request_: Request) -> None:
    assert decode(encode(request_), catalog) == request_


def test_the_order_of_keys_is_the_same_for_equal_requests(catalog: Catalog) -> None:
    one = decode(b'{"type": "mock", "mode": "sync", "total_rows": 3}', catalog)
    other = decode(b'{"total_rows": 3, "mode": "sync",  "type": "mock"}', catalog)
    assert encode(one) == encode(other)


def test_the_order_of_columns_in_a_schema_is_kept(catalog: Catalog) -> None:
    request = DeviceFile(device="d", path="p", schema_={"z": "int8", "a": "int8"})
    decoded = decode(encode(request), catalog)
    assert isinstance(decoded, DeviceFile)
    assert list(decoded.schema_ or {}) == ["z", "a"]


def test_the_wire_says_schema_and_python_says_schema_(catalog: Catalog) -> None:
    request = decode(b'{"type": "device.file", "device": "d", "path": "p", "schema": {"a": "int8"}}', catalog)
    assert request == DeviceFile(device="d", path="p", schema_={"a": "int8"})
    with refused(RequestError, where="schema_"):
        decode(b'{"type": "device.file", "device": "d", "path": "p", "schema_": {"a": "int8"}}', catalog)


def test_models_shadow_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        type("Again", (DeviceFile,), {"__module__": __name__})


@pytest.mark.parametrize(
    ("ticket", "said"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1]", "a JSON object is needed"),
        (b"{}", "type: no type is given"),
        (b'{"type": 3}', "type: no type is given"),
        (b'{"type": "mok"}', "Did you mean 'mock'? Known: device.exec, device.file, device.listing, device.session, "),
        (b'{"type": "mock", "row_per_batch": 1}', "row_per_batch: unknown key. Did you mean 'rows_per_batch'?"),
        (b'{"type": "mock", "rows_per_batch": 0}', "rows_per_batch: 0 is not allowed"),
        (b'{"type": "mock", "rows_per_batch": "10"}', 'rows_per_batch: "10" is not allowed'),
        (b'{"type": "mock", "rows_per_batch": true}', "rows_per_batch: true is not allowed"),
        (b'{"type": "mock", "delay_per_row": NaN}', "delay_per_row"),
        (b'{"type": "mock", "variant": "simpel"}', "\"simpel\" is not allowed. Did you mean 'simple'?"),
        (b'{"type": "mock", "mode": "asink"}', "mode: \"asink\" is not allowed. Did you mean 'async'?"),
        (b'{"type": "mock", "mode": null}', "mode: null is not allowed"),
        (b'{"type": "device.file", "device": "d", "path": "p", "transfer": "bas64"}', "Did you mean 'base64'?"),
        (b'{"type": "device.file", "device": "d", "path": "p", "sha256": "AB"}', 'sha256: "AB" is not allowed'),
        (b'{"type": "device.tree", "device": "d", "files": [""]}', "files.0"),
        (b'{"type": "device.file", "path": "/a"}', "device: this key is needed"),
        (b'{"type": "device.file", "device": "d", "path": "p", "schema": {"a": 3}}', "schema.a: 3 is not allowed"),
        (b'{"type": "device.file", "device": "\\ud800", "path": "p"}', "device"),
        (b'{"type": "mock", "total_rows": ' + b"9" * 5000 + b"}", "too long or nested too deep"),
        (b'{"type":' + b"[" * 100_000, "too deep"),
        (b'{"type": "mock", "rows_per_batch": ' + b"[" * 900 + b"]" * 900 + b"}", "rows_per_batch"),
        (b" " * (MAX_REQUEST_BYTES + 1), "are allowed"),
    ],
    ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_what_is_refused_and_what_is_said(catalog: Catalog, ticket: bytes, said: str) -> None:
    with pytest.raises(RequestError) as raised:
        decode(ticket, catalog)
    assert said in str(raised.value)
    assert raised.value.code == "request"


def test_a_lone_surrogate_is_refused_by_its_key(catalog: Catalog) -> None:
    for name, key in (("device", "\udcff"), ("path", "/a\udcff.csv"), ("schema", {"a": "\ud800"})):
        keys = {"type": "device.file", "device": "demo", "path": "/a.csv", name: key}
        with pytest.raises(RequestError, match=f"^{name}: not Unicode text. Write it in UTF-8$"):
            decode(json.dumps(keys).encode(), catalog)


def test_a_long_value_is_shortened(catalog: Catalog) -> None:
    ticket = json.dumps({"type": "mock", "variant": "x" * 10_000, "mode": "sync"}).encode()
    with pytest.raises(RequestError) as raised:
        decode(ticket, catalog)
    assert len(str(raised.value)) < 3 * MAX_SHOWN_CHARACTERS


@given(ticket=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_garbage_is_refused_as_a_request(catalog: Catalog, ticket: bytes) -> None:
    with pytest.raises(RequestError):
        decode(ticket, catalog)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    kind=st.sampled_from([source.request.type for source in CATALOG]),
    key=st.sampled_from(sorted({"x", *(key for source in CATALOG for key in source.request.model_fields)})),
    value=values,
)
def test_any_value_is_taken_or_refused_by_name(kind: str, key: str, value: object) -> None:
    ticket = json.dumps({"device": "d", "path": "p", "type": kind, key: value}).encode()
    try:
        request = decode(ticket, CATALOG)
    except RequestError as error:
        assert error.where
    else:
        assert decode(encode(request), CATALOG) == request


def test_a_path_descriptor_is_a_file_with_defaults() -> None:
    assert decode_path([b"demo", b"/a.csv"]) == DeviceFile(device="demo", path="/a.csv")


@pytest.mark.parametrize("path", [[], [b"demo"], [b"demo", b"a", b"b"], [b"demo", b""], [b"\xff", b"a"]])
def test_other_paths_are_refused(path: list[bytes]) -> None:
    with pytest.raises(RequestError):
        decode_path(path)
