"""Lines and boards that fail in the middle of a file: never a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fastflight.device import Inventory
from fastflight.errors import (
    FastFlightError,
)
from tests.device.content import CONTENT

FAULTS = ["reset-after-rx", "reset-after-tx", "unplug-after-rx", "exit-after-tx"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("after", [3000, 5000, 8000, 14000])
def test_a_broken_write_never_leaves_a_wrong_file(
    board: Callable[[str], Inventory], tmp_path: Path, fault: str, after: int
) -> None:
    device = board(f"fault={fault}%3D{after // (10 if 'tx' in fault else 1)}").device("demo")
    try:
        with device.lease("test") as session:
            session.write("/old.bin", [CONTENT])
    except FastFlightError:
        assert (tmp_path / "old.bin").read_bytes() == b"the old content"
    else:
        assert (tmp_path / "old.bin").read_bytes() == CONTENT
    assert device.holder is None


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("after", [1200, 4000, 9000])
def test_a_broken_read_never_gives_wrong_bytes(
    board: Callable[[str], Inventory], tmp_path: Path, fault: str, after: int
) -> None:
    device = board(f"fault={fault}%3D{after}").device("demo")
    (tmp_path / "big.bin").write_bytes(CONTENT)
    received = b""
    try:
        with device.lease("test") as session:
            for piece in session.read("/big.bin"):
                received += piece
    except FastFlightError:
        assert CONTENT.startswith(received)
    else:
        assert received == CONTENT


def test_a_slow_line_with_a_small_ring_and_slow_flash_loses_nothing(
    board: Callable[[str], Inventory], tmp_path: Path
) -> None:
    device = board("baud=921600&ring=512&fault=flash-stall%3D3").device("demo")
    with device.lease("test") as session:
        assert session.write("/new.bin", [CONTENT]).bytes == len(CONTENT)
        assert b"".join(session.read("/new.bin")) == CONTENT
    assert (tmp_path / "new.bin").read_bytes() == CONTENT


def test_a_line_that_loses_bytes_is_noticed(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    device = board("fault=drop-rx%3D0.001").device("demo")
    for _ in range(5):
        try:
            with device.lease("test") as session:
                session.write("/old.bin", [CONTENT])
        except FastFlightError:
            assert (tmp_path / "old.bin").read_bytes() in (b"the old content", CONTENT)
        else:
            assert (tmp_path / "old.bin").read_bytes() == CONTENT
