"""What docs/architecture.md names is where it says."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import fastflight

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
PACKAGE = Path(fastflight.__file__).parent
NAMES = sorted(set(re.findall(r"`((?:[a-z_]+\.)+_?[A-Za-z]\w*(?:\.[a-z]\w*)*)`", PAGE.read_text())))


def test_names_are_where_the_page_says() -> None:
    for name in NAMES:
        if name == "device.file" or name.startswith("pa."):
            continue
        words = name.split(".")
        for end in range(len(words), 0, -1):
            path = PACKAGE.joinpath(*words[:end])
            if path.with_suffix(".py").is_file() or path.is_dir():
                break
        found = importlib.import_module(".".join(["fastflight", *words[:end]]))
        for word in words[end:]:
            assert hasattr(found, word), name
            found = getattr(found, word)


def test_the_page_has_every_folder() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"testing"}
    table = PAGE.read_text().partition("## Folders")[2].partition("\n## ")[0]
    rows = "".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    assert folders == set(re.findall(r"`(\w+)`", rows)) - {"errors"}
