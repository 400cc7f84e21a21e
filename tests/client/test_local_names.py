"""Names from a server or a board, as names of local files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflight.client.local_names import board_path, clash, device_name, local_folder, local_name, local_path
from fastflight.errors import DataError, ProtocolError

# Names of devices that a server must not send.
BAD_NAMES = [
    "", ".", "..", "../../escaped", "/abs", "a/b", "a\\b", ".hidden", "a b", "a\nb", "ü", "C:", "a" * 256, "\0",
]  # fmt: skip
# Paths of a board that a server must not send.
BAD_PATHS = ["", "a", "../a", "/..", "/../a", "/a/../b", "/a/.", "//a", "/a//b", "\\a", "/a\0b"]
# Paths that could leave the folder, or that a terminal shows as others.
LEAVING = [
    "", ".", "..", "../a", "a/..", "a/../../b", "/a", "/", "a//b", "a/", "./a", "a\\b", "..\\b", "a\nb", "a\0b",
    "a\x7fb", "a\x9b31mb", "a\u202egpj.exe", "a\u2066b", "a\u2028b", "\ud800",
]  # fmt: skip
# Those that Windows takes for something else.
OF_WINDOWS = [
    "C:", "C:/a", "C:a", "a:b", "con", "CON.txt", "x/nul", "aux .log", "CONIN$", "com1.csv", "lpt¹", "a.",
    "a /b", "a?", "<",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_no_device_has(name: str) -> None:
    with pytest.raises(ProtocolError, match="as the name of a device"):
        device_name(name)


@pytest.mark.parametrize("name", ["a", "lab-1", "Board_2.x", "_", "0", "a" * 255])
def test_names_of_devices(name: str) -> None:
    assert device_name(name) == name


@pytest.mark.parametrize("path", BAD_PATHS)
def test_paths_that_no_board_has(path: str) -> None:
    with pytest.raises(ProtocolError, match="as the path of a file"):
        board_path(path)


@pytest.mark.parametrize("path", ["/", "/a", "/a/", "/lib/ü €.py", "/...", "/.x/..y", "/a\\b", "/a\x1bb"])
def test_paths_of_boards(path: str) -> None:
    assert board_path(path) == path


@pytest.mark.parametrize(
    "path", ["a", "a/b.csv", "ü/é €.txt", "...", "con.fig/x", "a b", "12:30.csv", "nul", "می\u200cشود"]
)
def test_names_that_land_below_the_folder(tmp_path: Path, path: str) -> None:
    assert local_path(tmp_path, path, windows=False) == tmp_path / path


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("path", LEAVING)
def test_names_that_could_leave_it(tmp_path: Path, windows: bool, path: str) -> None:
    with pytest.raises(DataError, match="cannot be a name here"):
        local_path(tmp_path, path, windows=windows)


@pytest.mark.parametrize("path", OF_WINDOWS)
def test_names_that_windows_takes_for_something_else(tmp_path: Path, path: str) -> None:
    with pytest.raises(DataError, match="cannot be a name here"):
        local_path(tmp_path, path, windows=True)


@given(path=st.text(alphabet=st.sampled_from("ab./\\: \0"), max_size=12) | st.text(max_size=20))
@pytest.mark.parametrize("windows", [False, True])
def test_whatever_a_device_says_stays_below(windows: bool, path: str) -> None:
    folder = Path("/nowhere/that/is")
    try:
        place = local_path(folder, path, windows=windows)
    except DataError:
        return
    assert folder in place.parents
    assert ".." not in place.parts


def test_a_link_does_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    with pytest.raises(DataError, match="a link stands where a folder is needed"):
        local_path(tmp_path / "in", "link/a")


def test_names_that_differ_in_case() -> None:
    assert clash(["a", "b/A", "b/c"]) is None
    assert clash(["b/a", "c", "B/A"]) == ("b/a", "B/A")


NAMES = st.text(alphabet=st.sampled_from("aA.-_%~/\\: \0\x1b2eécn"), max_size=12) | st.text(max_size=300)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("log.csv", "log.csv"),
        ("logs-a.csv", "logs-a.csv"),
        ("logs/a.csv", "logs%2fa.csv"),
        ("..", "%2e%2e"),
        (".", "%2e"),
        ("", "%"),
        (".x", "%2ex"),
        ("x.", "x%2e"),
        ("%2e", "%252e"),
        ("con", "%63on"),
        ("NUL.txt", "%4eUL.txt"),
        ("a b:é", "a%20b%3a%c3%a9"),
    ],
)
def test_an_encoded_name(text: str, name: str) -> None:
    assert local_name(text, folds_case=False) == name


@example(one="LOG.CSV", other="log.csv")
@example(one="a" * 300, other="a" * 301)
@example(one="..", other="%2e.")
@given(one=NAMES, other=NAMES)
@pytest.mark.parametrize("folds_case", [False, True])
def test_an_encoded_name_is_one_safe_name_that_no_other_text_has(folds_case: bool, one: str, other: str) -> None:
    names = [local_name(text, folds_case=folds_case) for text in (one, other)]
    for name in names:
        assert local_path(Path("folder"), name, windows=True) == Path("folder", name)
        assert re.fullmatch(r"[A-Za-z0-9_.%-]{1,200}", name) and name[0] != "."
    fold = str.casefold if folds_case else str
    assert (fold(names[0]) == fold(names[1])) == (one == other)


def test_devices_and_paths_have_folders_of_their_own() -> None:
    pairs = [("a", "/b/c"), ("a", "/b-c"), ("a/b", "/c"), ("a-b", "/c"), ("..", "/c"), ("a", "/.."), ("a", "/B/c")]
    folders = {local_folder(Path("top"), device, path) for device, path in pairs}
    assert len(folders) == len(pairs)
    assert all(folder.parent.parent == Path("top") for folder in folders)
    assert local_folder(Path("top"), "a", "b/./c/") == local_folder(Path("top"), "a", "/b/c")
