"""Files that are replaced as a whole, and locks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastflight.files import replacement, try_lock


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with replacement(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a", b"new")]


def test_the_old_file_stays_if_the_block_raises(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacement(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a", b"old")]


@pytest.mark.skipif(os.name != "posix", reason="links and modes are those of POSIX")
def test_a_link_is_replaced_and_the_mode_is_the_new_ones(tmp_path: Path) -> None:
    path, target = tmp_path / "link", tmp_path / "target"
    target.write_bytes(b"old")
    path.symlink_to(target)
    with replacement(path, 0o600) as file:
        file.write(b"new")
    assert (path.is_symlink(), path.stat().st_mode & 0o777, target.read_bytes()) == (False, 0o600, b"old")


def test_a_lock_has_one_holder_and_ends_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as first, path.open("rb+") as second:
        assert try_lock(first.fileno()) and not try_lock(second.fileno())
        first.close()
        assert try_lock(second.fileno())
