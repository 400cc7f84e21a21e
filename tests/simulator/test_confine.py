"""What board code does not find, and what the audit hook refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.simulator.confine import Wall

from .conftest import BoardClient


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardClient]:
    """One board for all: if a statement reached out, the others would notice."""
    board = BoardClient(tmp_path_factory.mktemp("confined") / "board", "--telemetry", "0")
    board.enter_raw()
    yield board
    assert board.close() == 0


STATEMENTS = {
    "real modules": ("import subprocess", b"ImportError: no module named 'subprocess'"),
    "hidden module": ("import ctypes", b"ImportError"),
    "private modules": ("import _thread, builtins", b"ImportError"),
    "sys.modules": ("import sys\nsys.modules['posix']", b"KeyError"),
    "os.system": ("import os\nos.system('true')", b"AttributeError"),
    "breakpoint": ("breakpoint()", b"NameError"),
    "vars": ("vars()", b"NameError"),
    "absolute path": ("open('/etc/passwd')", b"OSError: [Errno 2] ENOENT"),
    "descriptor": ("open(0)", b"TypeError"),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_that_reaches_out_fails(raw: BoardClient, name: str) -> None:
    code, expected = STATEMENTS[name]
    output, error = raw.exec(code)
    assert output == b""
    assert expected in error


def test_no_trace_shows_the_host(raw: BoardClient) -> None:
    for code in (
        "import json\njson.loads('{')",
        "import re\nre.compile('(')",
        "open('x')",
        "import struct\nstruct.pack('<B', 999)",
    ):
        _, error = raw.exec(code)
        assert error.startswith(b"Traceback")
        assert error.count(b"File") == 1
        assert b'File "<stdin>"' in error


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("open", ("/etc/passwd", "r", 0)),
        ("open", (3, "rb", 0)),
        ("open", ("{root}/../x", "w", os.O_WRONLY)),
        ("open", (os.__file__, "r+", os.O_RDWR)),
        ("open", (os.__file__, None, os.O_WRONLY)),
        ("os.remove", ("/tmp/x", -1)),
        ("os.remove", (os.__file__, -1)),
        ("os.rename", ("{root}/a", "/tmp/x", -1, -1)),
        ("os.listdir", ("/",)),
        ("os.chdir", ("{root}",)),
        ("os.symlink", ("/", "{root}/x", -1)),
        ("os.system", ("true",)),
        ("os.fork", ()),
        ("os.exec", ("/bin/true", [], None)),
        ("os.kill", (1, 9)),
        ("os.putenv", ("A", "B")),
        ("subprocess.Popen", ("true", [], None, None)),
        ("socket.__new__", (None, 2, 1, 0)),
        ("socket.connect", (None, ("127.0.0.1", 1))),
        ("ctypes.dlopen", ("libc.so.6",)),
        ("import", ("ctypes", None, None, None, None)),
        ("code.__new__", ()),
        ("gc.get_objects", (0,)),
        ("sys._getframe", (None,)),
        ("sys.settrace", ()),
        ("mmap.__new__", (0, 1, 1, 0)),
        ("_thread.start_new_thread", (print, (), {})),
        ("an.event.that.nobody.knows", ()),
    ],
)
def test_the_wall_refuses(tmp_path: Path, event: str, arguments: tuple[object, ...]) -> None:
    filled = tuple(part.replace("{root}", str(tmp_path)) if isinstance(part, str) else part for part in arguments)
    with pytest.raises(PermissionError, match=event):
        Wall(str(tmp_path))(event, filled)


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("open", ("{root}/a", "w", os.O_WRONLY)),
        ("open", (os.__file__, "rb", os.O_RDONLY)),
        ("os.rename", ("{root}/a", "{root}/b", -1, -1)),
        ("os.listdir", ("{root}",)),
        ("compile", (b"", "x")),
        ("import", ("encodings.cp037", None, None, None, None)),
    ],
)
def test_the_wall_lets_through(tmp_path: Path, event: str, arguments: tuple[object, ...]) -> None:
    filled = tuple(part.replace("{root}", str(tmp_path)) if isinstance(part, str) else part for part in arguments)
    Wall(str(tmp_path))(event, filled)


def test_the_wall_stands_in_a_process(tmp_path: Path) -> None:
    program = """
import sys, os, subprocess, socket
from fastflight.simulator.confine import Wall
Wall(sys.argv[1]).install()
def refused(act):
    try:
        act()
    except PermissionError:
        return
    raise SystemExit(f"not refused: {act}")
refused(lambda: open("/etc/hostname"))
refused(lambda: os.listdir("/"))
refused(lambda: os.remove(sys.argv[2]))
refused(lambda: os.system("true"))
refused(lambda: subprocess.run(["true"]))
refused(lambda: socket.socket())
refused(lambda: __import__("ctypes"))
refused(lambda: os.kill(os.getppid(), 0))
with open(os.path.join(sys.argv[1], "mine"), "w") as file:
    file.write("ok")
"""
    outside = tmp_path / "outside"
    outside.write_text("kept")
    root = tmp_path / "board"
    root.mkdir()
    subprocess.run([sys.executable, "-c", program, str(root), str(outside)], check=True, timeout=60)
    assert outside.read_text() == "kept"
    assert (root / "mine").read_text() == "ok"
