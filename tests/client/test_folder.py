"""What of a local folder can go to a device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastflight.client.local_files import agrees, local_digest, scan
from fastflight.errors import RequestError


def test_files_in_folders_are_found_in_order(tmp_path: Path) -> None:
    for path in ("b/c.py", "b/a/x", "a.txt", "empty/"):
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            place.mkdir()
        else:
            place.write_text(path)
    found = scan(tmp_path)
    assert [(entry.path, entry.size) for entry in found.files] == [("a.txt", 5), ("b/a/x", 5), ("b/c.py", 6)]
    assert [entry.local for entry in found.files] == [tmp_path / entry.path for entry in found.files]
    assert found.skipped == ()


def test_links_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("x")
    (tmp_path / "in" / "to a file").symlink_to("file")
    (tmp_path / "in" / "to a folder").symlink_to(tmp_path)
    (tmp_path / "in" / "to nothing").symlink_to("nowhere")
    os.mkfifo(tmp_path / "in" / "pipe")
    found = scan(tmp_path / "in")
    assert [entry.path for entry in found.files] == ["file"]
    assert found.skipped == ("pipe", "to a file", "to a folder", "to nothing")


@pytest.mark.parametrize(
    ("ignore", "files", "ignored"),
    [
        ((), ["a.pyc", "docs/a.md", "docs/sub/b.md", "lib/.git", "lib/a.pyc", "lib/a.py", "x/build"], []),
        (("*.pyc",), ["docs/a.md", "docs/sub/b.md", "lib/.git", "lib/a.py", "x/build"], ["a.pyc", "lib/a.pyc"]),
        ((".git", "sub", "lib"), ["a.pyc", "docs/a.md", "x/build"], ["docs/sub/", "lib/"]),
        (("build/", "docs/"), ["a.pyc", "lib/.git", "lib/a.pyc", "lib/a.py", "x/build"], ["docs/"]),
        (
            ("docs/*.md", "/a.*"),
            ["docs/sub/b.md", "lib/.git", "lib/a.pyc", "lib/a.py", "x/build"],
            ["a.pyc", "docs/a.md"],
        ),
        (
            ("docs/sub/", "A.PYC", "lib/a.py?"),
            ["a.pyc", "docs/a.md", "lib/.git", "lib/a.py", "x/build"],
            ["docs/sub/", "lib/a.pyc"],
        ),
    ],
)
def test_what_a_glob_matches_is_left_out(
    tmp_path: Path, ignore: tuple[str, ...], files: list[str], ignored: list[str]
) -> None:
    for path in ("docs/a.md", "docs/sub/b.md", "lib/.git", "lib/a.py", "lib/a.pyc", "a.pyc", "x/build"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    found = scan(tmp_path, ignore)
    assert sorted(entry.path for entry in found.files) == sorted(files)
    assert sorted(found.ignored) == sorted(ignored)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="nowhere: No such file or directory"):
        scan(tmp_path / "nowhere")


def test_a_name_that_is_not_text(tmp_path: Path) -> None:
    try:
        os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    except OSError:
        pytest.skip("this file system takes no such name")
    with pytest.raises(RequestError, match="not UTF-8"):
        scan(tmp_path)


def test_digests_are_those_of_boards(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"123456789")
    assert local_digest(path, "crc32") == "cbf43926"
    assert local_digest(path, "crc32", 0) == "00000000"
    assert local_digest(path, "sha256", 3).startswith("a665a459")
    assert local_digest(path, "sha256", 99) == local_digest(path, "sha256")
    assert agrees(path, "crc32", "cbf43926")
    assert not agrees(path, "crc32", "cbf43926", 8)
    assert not agrees(path, "md5", "")
    assert not agrees(path, "", "")
