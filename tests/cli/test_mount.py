"""A board reads a folder of this computer, without a server and with one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.commands import FASTFLIGHT, Command

Run = Callable[..., Result]

MODULE = "".join(f"def f{n}(a, b):\n    return [a + {n * 7919 % 1000}, b * {n}]\n" for n in range(200))

# What would change something outside the folder, or cannot be done.
CHANGES = (
    "remove('link')",
    "remove('up/secret')",
    "remove('../secret')",
    "remove('lib')",
    "remove('pipe')",
    "remove('/remote')",
    "rename('text.txt','up/new')",
    "rename('up/secret','new')",
    "rename('text.txt','link')",
    "rename('text.txt','lib')",
    "rename('lib','/remote/lib/lib')",
    "mkdir('up/new')",
    "mkdir('lib')",
    "rmdir('lib')",
    "rmdir('up')",
)


def everything(top: Path) -> dict[str, object]:
    """Return what is in a folder: the target of each link, and the content of each file."""
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        found[str(path)] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


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
        ("list(open('/remote/inside'))", r"['\xe9\xe9n\n', 'twee\n']"),  # MicroPython's repr is ASCII
        ("os.chdir('lib'), len(open('deep.py').readline())", f"None {len(MODULE.splitlines()[0]) + 1}"),
        ("os.stat('/')[0], 'app.py' in os.listdir('/')", "16384 False"),
    ],
)
def test_what_the_board_sees(run: Run, folder: Path, expression: str, expected: str) -> None:
    assert value(run, expression) == expected


REACHES = (
    *(f"open('{path}')" for path in ("../secret", "/remote/../../secret", "link", "up/secret", "pipe", "lib")),
    "os.listdir('up')",
    "os.stat('link')",
    *(f"open('{path}','{mode}')" for path in ("link", "up/secret", "up/new", "pipe", "lib") for mode in "wa"),
    "open('text.txt','x')",
    "open('none','r+')",
    "open('text.txt').write('x')",
    *(f"os.{change}" for change in CHANGES),
)
WRITES = ("open('new.txt','w')", "open('text.txt','a')", "os.remove('text.txt')", "os.mkdir('n')")
# What each statement raises.
TRY_EACH = """
import os
for code in {codes!r}:
    try:
        exec(code)
        print("nothing", code)
    except OSError:
        print("OSError")
"""


@pytest.mark.parametrize(("codes", "options"), [(REACHES, ()), (WRITES, ("--read-only",))], ids=["all", "read-only"])
def test_nothing_else_can_be_reached_or_changed(
    run: Run, folder: Path, codes: tuple[str, ...], options: tuple[str, ...]
) -> None:
    before = everything(folder.parent)
    result = run("mount", "folder", "demo", *options, "--exec", TRY_EACH.format(codes=codes))
    assert result.stdout.splitlines() == ["OSError"] * len(codes)
    assert everything(folder.parent) == before


def test_links_that_lead_out_are_followed_if_asked(run: Run, folder: Path) -> None:
    result = run("mount", "folder", "demo", "-l", "--exec", "print(open('link').read())\nopen('up/new','w').close()")
    assert result.stdout.strip() == "secret" and (folder.parent / "new").exists()


def test_typed_lines_and_a_soft_reset_after_which_the_folder_is_mounted_again(folder: Path) -> None:
    command = [*FASTFLIGHT, "mount", "folder", "--device=sim:?telemetry=0"]
    with Command(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stderr
        shown = b""
        # The file is not closed before the reset, so it keeps its old content.
        for keys in (b"import os\n", b"f=open('text.txt','w');f.write('new'*999)\n", b"os.listdir()\n", b"\x04"):
            process.stdin.write(keys)
            process.stdin.flush()
            shown = process.stdout.read1()  # the echo
            while not shown.endswith(b"\r\n>>> ") and (piece := process.stdout.read1()):
                shown += piece
            if keys.startswith(b"os"):
                assert shown.endswith(b"\r\n['app.py', 'inside', 'lib', 'raw.bin', 'text.txt']\r\n>>> ")
        assert b"soft reboot" in shown and b"again" in process.stderr.readline()
        shown, _ = process.communicate(b"import app\n", timeout=60)
    assert b"import app\r\napp [434, 14]\r\n>>> " in shown
    assert (folder / "text.txt").read_text() == "één\ntwee\n"
    assert sorted(os.listdir(folder)) == ["app.py", "inside", "lib", "link", "pipe", "raw.bin", "text.txt", "up"]


def test_a_program_that_runs_beside_requests_is_not_disturbed(run: Run, folder: Path, tmp_path: Path) -> None:
    board = tmp_path / "board"
    board.mkdir()
    agent = resources.files("fastflight.device") / "agent" / "fastflight_agent.py"
    (board / "fastflight_agent.py").write_bytes(agent.read_bytes())
    (board / "main.py").write_text("import time, fastflight_agent\nwhile True:\n    time.sleep_ms(10)\n")
    place = (f"--device=sim:?files={board}&telemetry=0", "--agent", "--exec", "print(6)")
    result = run("mount", "folder", *place)
    assert result.exit_code == 1 and "--interrupt" in result.stderr
    assert run("mount", "folder", *place, "--interrupt").stdout.strip() == "6"


def test_a_board_that_cannot_is_left_alone(run: Run, folder: Path) -> None:
    result = run("mount", "folder", "--device=sim:?telemetry=0&without=binascii", "--exec", "1")
    assert result.exit_code == 1 and "cannot mount" in result.stderr
