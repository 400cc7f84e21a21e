"""The board's code on MicroPython itself."""

from __future__ import annotations

import hashlib
import io
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from fastflight.device import Inventory, Resumption, Transfer
from fastflight.device.capabilities import Capabilities
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.resident import NAME, source

CONTENT = bytes(range(256)) * 40
TEXT = b"".join(b"%d,%d\n" % (i, i * i) for i in range(2000))


@pytest.fixture
def in_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the WebAssembly port could be interrupted: it is not offered these routines, because it cannot be."""
    monkeypatch.setattr(BoardLink, "upload_method", lambda link, transfer, where: "binary")


@pytest.mark.firmware
@pytest.mark.usefixtures("in_binary")
def test_the_real_machine_takes_and_gives_files(webassembly_without_raw_paste: str) -> None:
    with (
        Inventory({"vm": webassembly_without_raw_paste}) as inventory,
        inventory.device("vm").lease("test") as session,
    ):
        assert session.write("/x.bin", [CONTENT[:3000], CONTENT[3000:]]).verified == "sha256"
        assert b"".join(session.read("/x.bin")) == CONTENT
        assert b"".join(session.read("/x.bin", offset=5000, limit=3001)) == CONTENT[5000:8001]
        assert session.hash("/x.bin", limit=100) == ("sha256", hashlib.sha256(CONTENT[:100]).hexdigest())
        assert session.write("/empty.bin", []).bytes == 0
        found = session.hashes("/tmp")
        assert found == []


@pytest.mark.firmware
@pytest.mark.usefixtures("in_binary")
def test_the_real_machine_inflates_and_deflates(webassembly_without_raw_paste: str) -> None:
    with (
        Inventory({"vm": webassembly_without_raw_paste}) as inventory,
        inventory.device("vm").lease("test") as session,
    ):
        mixed = TEXT[:5000] + random.Random(1).randbytes(6000) + TEXT[:5000]
        assert session.write("/x.csv", [TEXT], transfer=Transfer(deflate=True)).bytes == len(TEXT)
        assert b"".join(session.read("/x.csv", transfer=Transfer(deflate=True))) == TEXT
        session.write("/mixed", [mixed], transfer=Transfer(deflate=True))
        assert b"".join(session.read("/mixed", transfer=Transfer(deflate=True))) == mixed


@pytest.mark.firmware
@pytest.mark.usefixtures("in_binary")
def test_the_real_machine_resumes(webassembly_without_raw_paste: str) -> None:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    with (
        Inventory({"vm": webassembly_without_raw_paste}) as inventory,
        inventory.device("vm").lease("test") as session,
    ):
        session.exec(f"f=open('/.fastflight-part','wb');f.write({CONTENT[:4000]!r});f.close()")
        part = session.part("/x")
        assert part is not None
        assert (part.size, part.digest) == (4000, hashlib.sha256(CONTENT[:4000]).hexdigest())
        written = session.write("/x", [CONTENT[4000:]], resume=Resumption(part, sha256))
        assert (written.bytes, written.sha256, written.verified) == (len(CONTENT), sha256, "sha256")


@pytest.mark.firmware
@pytest.mark.usefixtures("in_binary")
def test_the_real_machine_takes_trees(webassembly_without_raw_paste: str) -> None:
    with (
        Inventory({"vm": webassembly_without_raw_paste}) as inventory,
        inventory.device("vm").lease("test") as session,
    ):
        files = {f"d{i % 3}/f{i}": CONTENT[: i * 100] for i in range(20)}
        written = session.write_tree("/tmp/t", [(path, [content]) for path, content in files.items()])
        assert written.at_once
        assert [path for path, _ in written.files] == [f"/tmp/t/{path}" for path in files]
        found = {each.path: each.digest for each in session.hashes("/tmp/t")}
        assert found == {f"/tmp/t/{path}": hashlib.sha256(content).hexdigest() for path, content in files.items()}


@pytest.mark.firmware
def test_small_firmware_falls_down_the_ladder(microbit: str) -> None:
    """No folders, no digests, no rename, 8 KB of heap: text, read back, copied."""
    content = bytes(range(256)) * 4
    with Inventory({"bit": microbit}) as inventory, inventory.device("bit").lease("test") as session:
        assert session.write("/x.bin", [content[:500], content[500:]]).verified == "read back"
        assert b"".join(session.read("/x.bin")) == content
        assert b"".join(session.read("/x.bin", offset=300, limit=70)) == content[300:370]
        assert [(each.path, each.size, each.digest) for each in session.hashes()] == [("/x.bin", 1024, "")]
        assert session.part("/x.bin") is None
        written = session.write_tree("/", [("a", [b"one"]), ("b", [b"two", b"three"])])
        assert [(path, each.verified) for path, each in written.files] == [("/a", "read back"), ("/b", "read back")]
        assert b"".join(session.read("/b")) == b"twothree"
        assert len(session.list("/")) == 3


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
    for routine in ("sum", "put"):
        names: dict[str, Any] = {NAME: resident}
        exec(source(routine, board), names)
        setattr(resident, routine, staticmethod(names["_ff"]))
    monkeypatch.setattr(sys, "stdin", _Line(bytes((0x8C, 0x80)) + content[:1] + content))
    monkeypatch.setattr(sys, "stdout", _Line(b""))
    resident.put(str(old), str(part), 0, 256, 64)
    assert old.read_bytes() == b"the old content"
