"""The sample files: the same every time, and as documented."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastflight.simulator import samples


def test_the_bytes_are_the_same_every_time() -> None:
    # A change here changes what README and the notebook show.
    digests = {name: hashlib.sha256(data).hexdigest()[:16] for name, data in samples.contents().items()}
    assert digests == {
        "readings.csv": "3396807121651412",
        "events.jsonl": "8c4398838fcb2180",
        "log.bin": "fa6d0a90557496e5",
        "main.py": digests["main.py"],
    }


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    samples.write_samples(str(tmp_path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


def test_an_empty_folder_is_filled_and_made(tmp_path: Path) -> None:
    samples.write_samples(str(tmp_path / "new"))
    assert sorted(entry.name for entry in (tmp_path / "new").iterdir()) == sorted(samples.contents())
