"""Writes that break, and go on in another call: what is left on the board, and what comes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastflight.device import Inventory, PartialWrite, Resumption, Session
from fastflight.errors import DataError, DeviceError, ProtocolError, TransportError
from tests.device.content import CONTENT

SHA256 = hashlib.sha256(CONTENT).hexdigest()


def breaking(size: int) -> Iterator[bytes]:
    yield CONTENT[:size]
    raise DataError("the source broke")


def broken_off(session: Session, size: int) -> PartialWrite:
    with pytest.raises(DataError):
        session.write("/old.bin", breaking(size), keep=True)
    part = session.part("/old.bin")
    assert part is not None
    return part


@pytest.mark.parametrize("without", ["", "hashlib", "sys.stdin"], ids=["sha256", "crc32", "text"])
def test_a_write_goes_on_where_it_broke_off(board: Callable[[str], Inventory], tmp_path: Path, without: str) -> None:
    with board(f"without={without}").device("demo").lease("test") as session:
        part = broken_off(session, 5000)
        assert part.size == 5000
        assert (tmp_path / "old.bin").read_bytes() == b"the old content"
        assert (part.algorithm, part.digest) == session.hash("/.fastflight-part")
        written = session.write("/old.bin", [CONTENT[5000:]], resume=Resumption(part, SHA256))
        assert (written.bytes, written.sha256, written.verified) == (len(CONTENT), SHA256, part.algorithm)
        assert session.part("/old.bin") is None
    assert (tmp_path / "old.bin").read_bytes() == CONTENT


def test_another_lease_finds_the_part(inventory: Inventory) -> None:
    device = inventory.device("demo")
    with device.lease("one") as session:
        assert broken_off(session, 4000).size == 4000
    with device.lease("two") as session:
        part = session.part("/old.bin")
        assert part is not None
        assert part.digest == hashlib.sha256(CONTENT[:4000]).hexdigest()


def test_without_keep_nothing_is_left(inventory: Inventory, tmp_path: Path) -> None:
    with inventory.device("demo").lease("test") as session:
        with pytest.raises(DataError):
            session.write("/old.bin", breaking(5000))
        assert session.part("/old.bin") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.bin"]


def test_a_part_that_grew_is_refused(inventory: Inventory) -> None:
    with inventory.device("demo").lease("test") as session:
        part = broken_off(session, 5000)
        session.exec("f=open('/.fastflight-part','ab');f.write(b'x');f.close()")
        with pytest.raises(DeviceError, match="the part that a broken write left has changed"):
            session.write("/old.bin", [CONTENT[5000:]], resume=Resumption(part, SHA256))
        assert b"".join(session.read("/old.bin")) == b"the old content"


def test_a_part_of_other_content_is_found_out(inventory: Inventory) -> None:
    with inventory.device("demo").lease("test") as session:
        part = broken_off(session, 5000)
        session.exec("f=open('/.fastflight-part','wb');f.write(bytes(5000));f.close()")
        with pytest.raises(ProtocolError, match="is not what was sent; the old file is untouched"):
            session.write("/old.bin", [CONTENT[5000:]], resume=Resumption(part, SHA256))
        assert b"".join(session.read("/old.bin")) == b"the old content"


@pytest.mark.parametrize("after", [4000, 6000, 9000])
def test_a_reset_board_keeps_its_part(board: Callable[[str], Inventory], tmp_path: Path, after: int) -> None:
    device = board(f"fault=reset-after-rx%3D{after}").device("demo")
    with device.lease("test") as session, pytest.raises(ProtocolError, match="demo:/old.bin: the board was reset"):
        session.write("/old.bin", [CONTENT], keep=True)
    with device.lease("test") as session:
        part = session.part("/old.bin")
        assert part is not None
        assert part.digest == hashlib.sha256(CONTENT[: part.size]).hexdigest()
        session.write("/old.bin", [CONTENT[part.size :]], resume=Resumption(part, SHA256))
    assert (tmp_path / "old.bin").read_bytes() == CONTENT


def test_an_unplugged_board_keeps_its_part(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    device = board("fault=unplug-after-rx%3D12500").device("demo")
    with device.lease("test") as session, pytest.raises(TransportError):
        session.write("/old.bin", [CONTENT], keep=True)
    with device.lease("test") as session:
        part = session.part("/old.bin")
        assert part is not None
        session.write("/old.bin", [CONTENT[part.size :]], resume=Resumption(part, SHA256))
    assert (tmp_path / "old.bin").read_bytes() == CONTENT
