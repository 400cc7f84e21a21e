"""Board times of a recording are those that a live session of the same traffic had."""

from __future__ import annotations

from fastflight.errors import RequestError
from fastflight.log import NumberedRows
from fastflight.service.requests import DeviceSession, Recording
from fastflight.service.source import Noted
from fastflight.sources.recorded_rows import Replay, log_batch
from fastflight.sources.session_rows import SessionRows
from fastflight.transport.chunk_buffer import Chunk
from tests.support.refusals import refused

KEYS = {"format": "csv", "schema": {"ms": "int64"}, "ticks": "ms"}


def test_board_times_of_a_recording_are_those_of_the_session() -> None:
    chunks = [Chunk(i, i * 100_000_000 + i * 7 % 5 * 1_000_000, "rx", b"%d\n" % (i * 100 % 700)) for i in range(20)]
    live = SessionRows(DeviceSession.model_validate({"device": "demo", **KEYS}))
    replay = Replay(Recording.model_validate({"name": "demo", **KEYS}))
    live.begin(True)
    replay.begin(True)
    assert replay.schema.equals(live.schema, check_metadata=True)
    expected = [*live.feed(chunks), *live.finish()]
    told = [*replay.feed(NumberedRows(0, log_batch(chunks, {}))), *replay.finish()]
    assert [item.note for item in told if isinstance(item, Noted)] == [
        {"alignments": [{"seq": seq, "reason": "the ticks went back"} for seq in (7, 14)]}
    ]
    assert [item.batch.to_pylist() for item in told if isinstance(item, Noted)] == [
        item.batch.to_pylist() for item in expected if isinstance(item, Noted)
    ]
    assert replay.summary()["ticks"] == live.summary()["ticks"]


def test_bytes_have_no_ticks() -> None:
    with refused(RequestError, where="ticks"):
        Replay(Recording.model_validate({"name": "demo", "ticks": "ms"}))
