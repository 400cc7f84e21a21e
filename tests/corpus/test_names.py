"""Names that a board gives its files: `names` has them. Nothing lands outside of the folder that it is copied to."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastflight.client.local_names import local_path
from fastflight.errors import DataError

from . import names
from .case import Case, check, each


def lands(folder: Path, name: str, *, windows: bool) -> str:
    place = local_path(folder, name, windows=windows)
    assert place.resolve().is_relative_to(folder.resolve())
    return place.relative_to(folder).as_posix()


@each(names.NAMES)
def test_a_name(case: Case, tmp_path: Path) -> None:
    check(case, lambda name: lands(tmp_path, name, windows=False))


@each([case for case in names.NAMES if case.error] + names.WINDOWS)
def test_a_name_on_windows(case: Case, tmp_path: Path) -> None:
    check(case, lambda name: lands(tmp_path, name, windows=True))


def test_a_link_in_the_way(tmp_path: Path) -> None:
    """Somebody has put a link where a folder will be: what it leads to is not written to."""
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "lib").symlink_to(tmp_path)
    with pytest.raises(DataError, match="a link stands where a folder is needed"):
        local_path(tmp_path / "target", "lib/x")
