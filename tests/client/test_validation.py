"""What a server says that no server of ours would: a `ProtocolError` that says what was not understood."""

from __future__ import annotations

from collections.abc import Callable
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
DEVICE = {"name": "demo", "url": "sim:"}
ENTRY = {"path": "/a", "kind": "file", "size": 3, "modified": 0.5}
DIGEST = {"algorithm": "sha256", "digest": "ab"}


def acknowledgement(body: bytes) -> object:
    return message(body, "an acknowledgement", HERE)


def entries(rows: list[dict[str, Any]]) -> object:
    return answers.entries_of([pa.RecordBatch.from_pylist(rows)])


def session(rows: list[dict[str, Any]]) -> object:
    return Seeking(b"ok").feed(pa.RecordBatch.from_pylist(rows))


# What reads an answer, an answer that it takes, others that it refuses, and in which words.
ANSWERS: list[tuple[Callable[[Any], object], Any, list[Any], str]] = [
    (acknowledgement, b"{}", [b"[]"], "^grpc://127.0.0.1:1: an acknowledgement is not a JSON object$"),
    (
        acknowledgement,
        b'{"rows":1}',
        [b"", b"{", b"\xff", b"[" * 100_000, b'{"rows":' + b"9" * 5000 + b"}"],
        "an acknowledgement is not understood. Is the server of the same version",
    ),
    (whole, 5, [None, True, 1.0, -1, 2**63, "5", float("inf"), []], "it is not understood"),
    (text, "x", [None, 5, b"x", "half \ud800"], "it is not understood"),
    (content, b"x", ["x"], "it is not understood"),
    (
        answers.device_of,
        DEVICE,
        [{}, DEVICE | {"name": 5}, DEVICE | {"holder": 1}, "text"],
        "what the server says of a device is not understood",
    ),
    (
        answers.recorded_of,
        RECORDED,
        [
            RECORDED | changed
            for changed in (
                *({"first_time": "today"}, {"first_time": 5}, {"rows": "1"}),
                *({"damage": 5}, {"damage": [5]}, {"name": None}),
            )
        ],
        "what the server says of a recording is not understood",
    ),
    (
        answers.entry_of,
        ENTRY,
        [ENTRY | changed for changed in ({"size": -1}, {"modified": 1e300}, {"modified": "now"}, {"path": None})],
        "what the server says of a file is not understood",
    ),
    (entries, [], [[{"path": "/a", "kind": "file"}]], "a listing of the server is not understood"),
    (session, [{"direction": "rx", "data": b"o"}], [[{"data": b"ok"}]], "a row of the session is not understood"),
    (
        combined,
        [{"rows": 1}, {"rows": 2}],
        [[{"rows": 1}, {"rows": ["a"]}], [{"duration_seconds": "long"}, {"duration_seconds": 1.0}]],
        "what the server says of its rows is not understood",
    ),
    (answers.digest_of, DIGEST, [{"algorithm": "sha256"}], "a digest of the server is not understood"),
]


@pytest.mark.parametrize(("read", "good", "bad", "says"), ANSWERS)
def test_an_answer_that_is_none(read: Callable[[Any], object], good: Any, bad: list[Any], says: str) -> None:
    with validating("it"):
        read(good)
    for answer in bad:
        with pytest.raises(ProtocolError, match=says), validating("it"):
            read(answer)


def test_errors_of_ours_pass() -> None:
    with pytest.raises(UnknownName), validating("it"):
        raise UnknownName("no such device")


def test_a_description_that_nests_too_deeply_is_none() -> None:
    described = OSError("it failed")
    described.extra_info = b"[" * 100_000  # type: ignore[attr-defined]
    assert "it failed" in str(typed(described, HERE))


def test_a_path_that_is_not_utf8_is_shown() -> None:
    assert path_of(pa.schema([], {"fastflight.path": b"\xff"})) == "\ufffd"
