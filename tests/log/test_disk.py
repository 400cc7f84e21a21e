"""The disk of the operating system: what is said to be kept was written through to the medium."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastflight.log import Store
from tests.log.rows import SCHEMA, batch_of


@pytest.mark.skipif(os.name == "nt", reason="a folder cannot be opened there")
def test_an_append_is_acknowledged_when_the_system_has_it_on_the_medium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that is killed loses nothing of what the system holds: only a power cut would show what was not synced.
    on_medium: dict[int, int] = {}

    def watched(name: str) -> None:
        sync = getattr(os, name)

        def synced(descriptor: int) -> None:
            sync(descriptor)
            state = os.fstat(descriptor)
            on_medium[state.st_ino] = state.st_size

        monkeypatch.setattr(os, name, synced)

    for name in ("fsync", "fdatasync"):
        if hasattr(os, name):
            watched(name)
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("a", SCHEMA)
        for first in range(3):
            log.append(batch_of("a", first, 1)).result()
            (segment,) = tmp_path.glob("*.seg")
            assert on_medium[segment.stat().st_ino] == segment.stat().st_size
        assert tmp_path.stat().st_ino in on_medium
