"""Writes the snapshots of the public surface: `python -m tests.stability`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.stability.answers import observe
from tests.stability.surface import SURFACES

HERE = Path(__file__).parent


def main() -> None:
    """Write all snapshots."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        snapshots = {name: surface() for name, surface in SURFACES.items()}
        snapshots["answers"] = observe(Path(folder), patch)
    for name, lines in snapshots.items():
        (HERE / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
