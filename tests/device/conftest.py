"""Boards for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastflight.device import Inventory


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    (tmp_path / "old.bin").write_bytes(b"the old content")
    with Inventory({"demo": f"sim:?files={tmp_path}&telemetry=0"}) as opened:
        yield opened


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Callable[[str], Inventory]]:
    """Inventories with the simulated board started in a given way, closed at the end."""
    opened: list[Inventory] = []

    def start(options: str) -> Inventory:
        (tmp_path / "old.bin").write_bytes(b"the old content")
        opened.append(Inventory({"demo": f"sim:?files={tmp_path}&telemetry=0&{options}"}))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
