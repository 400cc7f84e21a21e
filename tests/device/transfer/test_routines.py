"""The board's code on MicroPython itself."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from fastflight.device.capabilities import Capabilities
from fastflight.device.transfer.resident import NAME, source

CONTENT = bytes(range(256)) * 40
TEXT = b"".join(b"%d,%d\n" % (i, i * i) for i in range(2000))


class _Line:
    """The board's end of a line that brings `data` and then nothing."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


@pytest.mark.parametrize("content", [b"Yet another line\n", b"N" * 20, b""])
def test_content_that_is_taken_for_an_end_does_not_replace_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """A header whose first byte was lost may read like the end, and what follows it like a word to rename."""
    old, part = tmp_path / "old", tmp_path / "part"
    old.write_bytes(b"the old content")
    board = Capabilities(frozenset({"hashlib.sha256", "binascii.crc32"}))
    resident: Any = type(NAME, (), {})
    monkeypatch.setitem(sys.modules, NAME, resident)
    for routine in ("sum", "put"):
        names: dict[str, Any] = {}
        exec(source(routine, board), names)
        setattr(resident, routine, staticmethod(names["_ff"]))
    monkeypatch.setattr(sys, "stdin", _Line(bytes((0x8C, 0x80)) + content[:1] + content))
    monkeypatch.setattr(sys, "stdout", _Line(b""))
    resident.put(str(old), str(part), 0, 256, 64, 256)
    assert old.read_bytes() == b"the old content"
