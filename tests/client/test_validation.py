"""What a server says that no server of ours would: a `ProtocolError` that says what was not understood."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from fastflight.client import answers
from fastflight.client.failure import typed
from fastflight.client.interaction import Seeking
from fastflight.client.parallel import combined
from fastflight.client.stream import path_of
from fastflight.client.validation import content, message, text, validating, whole
from fastflight.errors import ProtocolError, UnknownName

HERE = "grpc://127.0.0.1:1"
RECORDED = {
    "name": "demo", "state": "kept", "rows": 1, "bytes": 2, "first_seq": 0, "next_seq": 1, "lost": 0, "failures": 0,
    "first_time": "2025-01-01T00:00:00+00:00", "last_time": None, "damage": [],
}  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"rows":' + b"9" * 5000 + b"}"])
def test_what_is_not_json_is_not_understood(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="an acknowledgement is not understood. Is the server of the same version"):
        message(body, "an acknowledgement", HERE)


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ProtocolError, match="^grpc://127.0.0.1:1: an acknowledgement is not a JSON object$"):
        message(b"[]", "an acknowledgement", HERE)


@pytest.mark.parametrize("given", [None, True, 1.0, -1, 2**63, "5", float("inf"), []])
def test_a_number_of_something_is_a_whole_number(given: Any) -> None:
    with pytest.raises(ProtocolError), validating("it"):
        whole(given)
    assert whole(5) == 5


@pytest.mark.parametrize("given", [None, 5, b"x", "half \ud800"])
def test_text_can_be_written(given: Any) -> None:
    with pytest.raises(ProtocolError), validating("it"):
        text(given)


def test_bytes_are_bytes() -> None:
    with pytest.raises(ProtocolError), validating("it"):
        content("x")
    assert content(b"x") == b"x"


def test_errors_of_ours_pass() -> None:
    with pytest.raises(UnknownName), validating("it"):
        raise UnknownName("no such device")


@pytest.mark.parametrize("given", [{}, {"name": 5, "url": ""}, {"name": "a", "url": "b", "holder": 1}, "text"])
def test_a_device_that_is_none(given: Any) -> None:
    with pytest.raises(ProtocolError, match="what the server says of a device is not understood"):
        answers.device_of(given)


@pytest.mark.parametrize(
    "changed",
    [{"first_time": "today"}, {"first_time": 5}, {"rows": "1"}, {"damage": 5}, {"damage": [5]}, {"name": None}],
)
def test_a_recording_that_is_none(changed: dict[str, Any]) -> None:
    assert answers.recorded_of(RECORDED).rows == 1
    with pytest.raises(ProtocolError, match="what the server says of a recording is not understood"):
        answers.recorded_of(RECORDED | changed)


@pytest.mark.parametrize("changed", [{"size": -1}, {"modified": 1e300}, {"modified": "now"}, {"path": None}])
def test_a_file_that_is_none(changed: dict[str, Any]) -> None:
    entry = {"path": "/a", "kind": "file", "size": 3, "modified": 0.5}
    assert answers.entry_of(entry).size == 3
    with pytest.raises(ProtocolError, match="what the server says of a file is not understood"):
        answers.entry_of(entry | changed)


def test_a_listing_without_its_columns() -> None:
    with pytest.raises(ProtocolError, match="a listing of the server is not understood"):
        answers.entries_of([pa.RecordBatch.from_pylist([{"path": "/a", "kind": "file"}])])


def test_a_session_without_directions() -> None:
    with pytest.raises(ProtocolError, match="a row of the session is not understood"):
        Seeking(b"ok").feed(pa.RecordBatch.from_pylist([{"data": b"ok"}]))


def test_summaries_that_do_not_add_up() -> None:
    with pytest.raises(ProtocolError, match="what the server says of its rows is not understood"):
        combined([{"rows": 1}, {"rows": ["a"]}])
    with pytest.raises(ProtocolError):
        combined([{"duration_seconds": "long"}, {"duration_seconds": 1.0}])


def test_a_description_that_nests_too_deeply_is_none() -> None:
    described = OSError("it failed")
    described.extra_info = b"[" * 100_000  # type: ignore[attr-defined]
    assert "it failed" in str(typed(described, HERE))


def test_a_path_that_is_not_utf8_is_shown() -> None:
    assert path_of(pa.schema([], {"fastflight.path": b"\xff"})) == "\ufffd"


def test_a_digest_of_another_kind() -> None:
    assert answers.digest_of(json.loads('{"algorithm": "sha256", "digest": "ab"}')).digest == "ab"
    with pytest.raises(ProtocolError, match="a digest of the server is not understood"):
        answers.digest_of({"algorithm": "sha256"})
