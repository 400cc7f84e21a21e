"""A board reads a folder of this computer, without a server and with one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]

# With a server, and without one.
PLACES = [("demo",), ("--device=sim:?telemetry=0",)]
MODULE = "".join(f"def f{n}(a, b):\n    return [a + {n * 7919 % 1000}, b * {n}]\n" for n in range(200))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder"
    (folder / "lib").mkdir(parents=True)
    (folder / "app.py").write_text("import lib.deep\nprint('app', lib.deep.f7(1, 2))\n")
    (folder / "lib" / "__init__.py").write_text("")
    (folder / "lib" / "deep.py").write_text(MODULE)
    (folder / "text.txt").write_text("één\ntwee\n")
    (folder / "raw.bin").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "secret").write_text("secret\n")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    (folder / "inside").symlink_to(folder / "text.txt")
    os.mkfifo(folder / "pipe") if sys.platform != "win32" else None
    return folder


@pytest.mark.parametrize("place", PLACES)
def test_a_module_is_imported_from_the_folder(run: Run, folder: Path, place: tuple[str, ...]) -> None:
    result = run("mount", "folder", *place, "--exec", "import app")
    assert (result.stdout.replace("\r\n", "\n"), result.exit_code) == ("app [434, 14]\n", 0)


def value(run: Run, expression: str) -> str:
    result = run("mount", "folder", "demo", "--exec", f"import os\nprint({expression})")
    return result.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("os.getcwd().strip('/')", "remote"),
        ("sorted(os.listdir())", "['app.py', 'inside', 'lib', 'raw.bin', 'text.txt']"),
        ("os.stat('lib')[0], os.stat('/remote/raw.bin')[6]", "16384 10240"),
        ("open('raw.bin','rb').read()==bytes(range(256))*40", "True"),
        ("open('text.txt').read()", "twee"),
        ("list(open('/remote/inside'))", "['één\\n', 'twee\\n']"),
        ("os.chdir('lib'), len(open('deep.py').readline())", f"None {len(MODULE.splitlines()[0]) + 1}"),
        ("os.stat('/')[0], 'app.py' in os.listdir('/')", "16384 False"),
    ],
)
def test_what_the_board_sees(run: Run, folder: Path, expression: str, expected: str) -> None:
    assert value(run, expression) == expected


@pytest.mark.parametrize(
    "code",
    [
        *(f"open('{path}')" for path in ("../secret", "/remote/../../secret", "link", "up/secret", "pipe", "lib")),
        "import os; os.listdir('up')",
        "import os; os.stat('link')",
        "open('new.txt','w')",
        "import os; os.remove('text.txt')",
        "import os; os.rename('text.txt','new.txt')",
    ],
)
def test_nothing_else_can_be_reached_and_nothing_written(run: Run, folder: Path, code: str) -> None:
    before = sorted(os.listdir(folder))
    result = run("mount", "folder", "demo", "--exec", code)
    assert result.exit_code == 1 and "OSError" in result.stdout and "secret\n" not in result.stdout
    assert sorted(os.listdir(folder)) == before


def test_the_board_is_as_before_when_the_command_has_ended(run: Run, folder: Path) -> None:
    run("mount", "folder", "demo", "--exec", "1/0")
    assert run("eval", "demo", "__import__('os').getcwd(), [at for _, at in __import__('os').mount()]").stdout == (
        "('/', ['/'])\n"
    )
    assert run("mount", "folder", "demo", "--exec", "print(6)").stdout.strip() == "6"


def test_typed_lines(folder: Path) -> None:
    command = [sys.executable, "-m", "fastflight", "mount", "folder", "--device=sim:?telemetry=0"]
    done = subprocess.run(command, input=b"import app\n", capture_output=True, timeout=60)
    assert b">>> import app\r\napp [434, 14]\r\n>>> " in done.stdout


def test_a_board_that_cannot_is_left_alone(run: Run, folder: Path) -> None:
    result = run("mount", "folder", "--device=sim:?telemetry=0&without=binascii", "--exec", "1")
    assert result.exit_code == 1 and "cannot mount" in result.stderr


@pytest.mark.firmware
def test_the_real_vm(run: Run, folder: Path, webassembly_without_raw_paste: str) -> None:
    board = f"--device={webassembly_without_raw_paste}"
    code = (
        "import app\nprint(open('raw.bin','rb').read()==bytes(range(256))*40)\n"
        "print(open('text.txt').readlines()==['één\\n','twee\\n'])"
    )
    result = run("mount", "folder", board, "--exec", code)
    assert result.stdout.replace("\r\n", "\n") == "app [434, 14]\nTrue\nTrue\n"
    result = run("mount", "folder", board, "--exec", "open('link')")
    assert result.exit_code == 1 and "OSError" in result.stdout
