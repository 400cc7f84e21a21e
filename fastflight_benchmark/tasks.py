"""The daily tasks of the suite `commands`: the command line for each tool, and how the outcome is checked.

A person with one board plugged in types these lines, in a folder with the files of `LOCAL`. Before each task the
board has the files of `ON_BOARD`, and no others.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

# The arguments of a check: the board's folder, the folder in which the command ran, and the printed text.
Check = Callable[[Path, Path, str], bool]

SCRIPT = "print('hello from a.py')\n"
TABLE = "n,celsius\n" + "".join(f"{n},{20 + n % 7 / 10:.1f}\n" for n in range(1_000))
DIGEST = hashlib.sha256(TABLE.encode()).hexdigest()
LIBRARY = {f"lib/part{n}.py": f"# part {n}\n" * 100 for n in range(5)}
# A module of 10 kB: source text of this project, as comments.
MODULE = (
    "\n".join(f"# {line}" for line in (Path(__file__).read_text() * 3)[:9_600].splitlines())[:9_988] + "\nREADY = 1\n"
)
MANY = {f"many/file{n}.py": f"# {n}\n" for n in range(100)}
LOCAL: Mapping[str, str] = {
    "a.py": SCRIPT,
    "b.py": SCRIPT,
    "unchanged/log.csv": TABLE,
    "mounted/module.py": MODULE,
    **MANY,
    **LIBRARY,
}
ON_BOARD: Mapping[str, str] = {
    "notes.txt": "water the plants\n",
    "log.csv": TABLE,
    "old.txt": "old\n",
    "name.txt": "name\n",
    "unchanged/log.csv": TABLE,
    "tree/a.py": SCRIPT,
    "tree/b.py": SCRIPT,
    "gone/a.py": SCRIPT,
    **MANY,
}
# An editor that needs no person: it changes a word.
EDITOR = "sed -i s/water/feed/"
# The import of a module, timed by the board.
IMPORT = (
    "import sys,time; sys.modules.pop('module',0); t=time.ticks_ms(); import module; "
    "print('took',time.ticks_diff(time.ticks_ms(),t),'ms')"
)


@dataclass(frozen=True, slots=True)
class Task:
    """`ours` and `theirs` are the command lines without the name of the tool. `theirs` is None if mpremote has none.

    `check` decides whether the outcome is correct, for both tools. With `timed_by_board`, the time is the one that the
    board prints: `took 12 ms`.
    """

    name: str
    ours: str
    theirs: str | None
    check: Check
    timed_by_board: bool = False

    def arguments(self, tool: str) -> list[str] | None:
        """Return the arguments for a tool; None if it cannot do the task."""
        line = self.theirs if tool == MPREMOTE else self.ours
        return None if line is None else shlex.split(line)

    def typed(self, tool: str) -> str:
        """Return what a person types; empty if the tool cannot do the task."""
        line = self.theirs if tool == MPREMOTE else self.ours
        return "" if line is None else f"{MPREMOTE if tool == MPREMOTE else 'fastflight'} {line}"


SERVER, BOARD, MPREMOTE = "fastflight with a server", "fastflight without a server", "mpremote"
TOOLS = (SERVER, BOARD, MPREMOTE)


def printed(*words: str) -> Check:
    """Return a check that each of `words` was printed."""
    return lambda board, here, output: all(word in output for word in words)


def on_board(name: str, content: str | None) -> Check:
    """Return a check that a file on the board has this content. With None, that no file has this name."""
    return lambda board, here, output: _content(board / name) == content


def local(name: str, content: str) -> Check:
    """Return a check that a local file has this content."""
    return lambda board, here, output: _content(here / name) == content


def collected(content: str) -> Check:
    """Return a check that a log has left the board, and is here with this content."""
    return lambda board, here, output: (
        [path.read_text() for path in here.glob("logs/*/log.csv/*.csv")] == [content]
        and not list(board.glob("log.csv*"))
    )


def exists(name: str) -> Check:
    """Return a check that a local file exists and is not empty."""
    return lambda board, here, output: (here / name).stat().st_size > 0


def folder_on_board(name: str) -> Check:
    """Return a check that the board has a folder of this name."""
    return lambda board, here, output: (board / name).is_dir()


def _content(path: Path) -> str | None:
    if path.is_dir():
        return ""
    return path.read_text() if path.exists() else None


TASKS = (
    Task("list a folder", "ls", "ls", printed("notes.txt", "log.csv")),
    Task("list all folders", "ls -r", "tree", printed("notes.txt", "a.py")),
    Task("show a text file", "cat :notes.txt", "cat :notes.txt", printed("water the plants")),
    Task("first rows of a table", "head :log.csv", "cat :log.csv", printed("celsius", "20.1")),
    Task("copy a file from the board", "cp :log.csv .", "cp :log.csv .", local("log.csv", TABLE)),
    Task("copy a file to the board", "cp a.py :", "cp a.py :", on_board("a.py", SCRIPT)),
    Task("copy several files", "cp a.py b.py :", "cp a.py b.py :", on_board("b.py", SCRIPT)),
    Task("copy a folder to the board", "cp -r lib :", "cp -r lib :", on_board("lib/part4.py", LIBRARY["lib/part4.py"])),
    Task(
        "copy an unchanged folder",
        "put -r unchanged :",
        "cp -r unchanged :",
        on_board("unchanged/log.csv", TABLE),
    ),
    Task("keep 100 files equal, none changed", "sync many :/many", "cp -r many :", on_board("many/file7.py", "# 7\n")),
    Task("copy a folder from the board", "cp -r :tree .", "cp -r :tree .", local("tree/b.py", SCRIPT)),
    Task("remove a file", "rm :old.txt", "rm :old.txt", on_board("old.txt", None)),
    Task("remove a folder", "rm -r --yes :gone", "rm -r :gone", on_board("gone", None)),
    Task("make a folder", "mkdir :data", "mkdir :data", folder_on_board("data")),
    Task(
        "rename a file",
        "mv :name.txt renamed.txt",
        "exec \"import os; os.rename('name.txt', 'renamed.txt')\"",
        on_board("renamed.txt", "name\n"),
    ),
    Task("edit a file", "edit :notes.txt", "edit :notes.txt", on_board("notes.txt", "feed the plants\n")),
    Task("free storage", "df", "df", printed("/", "%")),
    Task("digest of a file", "hash :log.csv", "sha256sum :log.csv", printed(DIGEST)),
    Task("run a line", "exec 'print(6 * 7)'", "exec 'print(6 * 7)'", printed("42")),
    Task("evaluate an expression", "eval '6 * 7'", "eval '6 * 7'", printed("42")),
    Task("run a local script", "run a.py", "run a.py", printed("hello from a.py")),
    Task(
        "import 10 kB from a mounted folder",
        f'mount mounted --exec "{IMPORT}"',
        f'mount mounted exec "{IMPORT}"',
        printed("took"),
        timed_by_board=True,
    ),
    Task(
        "facts about the board",
        "info",
        "exec 'import os; print(os.uname())'",
        printed("Simulated board"),
    ),
    Task("soft reset", "soft-reset", "soft-reset", printed("")),
    Task("read the clock", "rtc", "rtc", printed("20")),
    Task("set the clock", "rtc --set", "rtc --set", printed("")),
    Task("list serial ports", "ports", "devs", printed("")),
    Task("version", "--version", "version", printed(".")),
    Task("help", "--help", "help", printed("cp")),
    Task("collect a log", "collect :log.csv -o logs", None, collected(TABLE)),
    Task("a table as Parquet", "get :log.csv log.parquet", None, exists("log.parquet")),
    Task("three rows of live output", "tail -n 3", None, printed(":")),
    Task("three rows of live output as JSON", "tail -n 3 --json", None, printed("{")),
    Task("a plot of live output", "plot --column temperature --seconds 1", None, exists("board.png")),
)
