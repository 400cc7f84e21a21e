"""Commands and what they print, as transcripts in the folder `transcripts`.

A scenario begins with `## ` and its title, and with new files on two boards, `demo` and `lab`, and in the folder where
the commands run. There is a recording `weather` of ten lines, of which two are missing.

`$ ` begins a command of fastflight. Below it stand the lines that it prints: those on stderr after `2> `, and an exit
code other than 0 at the end. `...` in them stands for any text. After `<` comes standard input.

A few words are no commands of fastflight, but change files or look at them: see `Scene`. `refusals.txt` is a table of
commands that change nothing.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.app.config import RecordingSettings
from fastflight.log import Store
from fastflight.sources.session_lines import BEGAN
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import log_batch
from tests.support.commands import FASTFLIGHT
from tests.support.folders import files_below
from tests.support.servers import ready_server

from .conftest import Run

FOLDER = Path(__file__).parent / "transcripts"
BOARD = {
    "readings.csv": "time,celsius\n1,20.5\n2,21.0\n3,19.5\n",
    "log.bin": "\0\1\2\3\4\5\6\7",
    "a.csv": "a\n1\n",
    "data/log-1.csv": "a\n1\n",
    "data/log-2.csv": "a\n2\n",
    "data/deep/x.bin": "\0x",
}
HERE = {
    "a.py": "a = 1\n",
    "a.csv": "a\n1\n",
    "b.csv": "b\n1\n",
    "empty": "",
    "app/main.py": "import lib\n",
    "app/lib/c.py": "c = 1\n",
}


def plant(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of both boards."""
    folder = tmp_path_factory.mktemp("boards")
    plant(folder / "demo", BOARD)
    plant(folder / "lab", {"not": "empty"})
    return folder


def record_weather(folder: Path) -> None:
    """Store a line each second from 2026-11-20 08:00 UTC on, without those of the numbers 5 and 6."""
    begin_ns = 1_795_161_600 * 10**9
    with Store(folder, sync_ms=0) as store:
        for numbers in (range(5), range(7, 10)):
            lines = [Chunk(n, begin_ns + n * 10**9, "rx", b"%d,2%d.5\n" % (n, n)) for n in numbers]
            store.open("weather").append(log_batch(lines, {0: BEGAN}), first=numbers.start).result()


@pytest.fixture(scope="module")
def location(boards: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    urls = {name: f"sim:?files={boards / name}&telemetry=0" for name in ("demo", "lab")}
    recordings = tmp_path_factory.mktemp("recordings")
    record_weather(recordings)
    with ready_server(urls, recordings=RecordingSettings(folder=recordings)) as location:
        yield location


@pytest.fixture
def here(boards: Path, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where commands run."""
    for path in boards.glob("*/*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    plant(boards / "demo", BOARD)
    plant(tmp_path, HERE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Scene:
    """Performs the lines of a scenario."""

    def __init__(self, run: Run, boards: Path) -> None:
        self._run = run
        self._boards = boards

    def perform(self, line: str) -> list[str]:
        """Return what a transcript shows below a line."""
        command, _, given = line.partition(" < ")
        word, *words = shlex.split(command)
        match word:
            case "write":  # TEXT to a file, so many times
                path = self._path(words[0])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(unescaped(words[1]) * int("".join(words[2:]) or 1))
            case "link":
                Path(words[0]).symlink_to(words[1])
            case "remove":
                self._path(words[0]).unlink()
            case "show":  # the text of a file
                return self._path(words[0]).read_text().splitlines()
            case "tree":  # the files below a folder
                return [" ".join(files_below(self._path(words[0])))]
            case "names":  # the paths in the listing that `ls` gives
                return [" ".join(entry["path"] for entry in json.loads(self._run(*words).stdout))]
            case _:
                words = [word, *(each.replace("\\n", "\n") for each in words)]
                return self._printed(words, unescaped(given).decode() if given else None)
        return []

    def _printed(self, words: list[str], given: str | None) -> list[str]:
        result = self._run(*words, input=given)
        said = [f"2> {line}" for line in re.sub(r" *\n", "\n", result.stderr).splitlines()]
        code = [f"exit {result.exit_code}"] if result.exit_code else []
        return [*(line.rstrip() for line in result.stdout.splitlines()), *said, *code]

    def _path(self, name: str) -> Path:
        board, colon, path = name.partition(":")
        return self._boards / board / path.lstrip("/") if colon else Path(name)


def unescaped(text: str) -> bytes:
    """Return the bytes of a text with `\\n`, `\\r` and `\\xff`, as a transcript has them."""
    return re.sub(
        rb"\\(n|r|x[0-9a-f]{2})",
        lambda found: {b"n": b"\n", b"r": b"\r"}.get(found[1]) or bytes.fromhex(found[1][1:].decode()),
        text.encode(),
    )


def fits(expected: str, line: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, expected.split("..."))), line) is not None


SCENARIOS = {
    title: [block.splitlines() for block in body.split("\n$ ")[1:]]
    for file in sorted(FOLDER.glob("*.transcript"))
    for title, _, body in (scenario.partition("\n") for scenario in f"\n{file.read_text()}".split("\n## ")[1:])
    for body in (f"\n{body.strip()}",)
}


@pytest.mark.parametrize("title", SCENARIOS)
def test_commands_print_what_their_transcript_shows(run: Run, boards: Path, here: Path, title: str) -> None:
    scene = Scene(run, boards)
    for line, *expected in SCENARIOS[title]:
        printed = scene.perform(line)
        assert len(printed) == len(expected) and all(map(fits, expected, printed)), (line, printed)


ROWS = (FOLDER / "refusals.txt").read_text().splitlines()
REFUSALS = [row.split(" | ", 2) for row in ROWS if row and not row.startswith("#")]


@pytest.mark.parametrize(("code", "command", "says"), REFUSALS, ids=[command for _, command, _ in REFUSALS])
def test_a_refused_command_says_why_and_changes_nothing(
    run: Run, boards: Path, here: Path, code: str, command: str, says: str
) -> None:
    before = files_below(here), files_below(boards)
    result = run(*shlex.split(command), input="x")
    assert (result.exit_code, result.stdout) == (int(code), ""), result.output
    assert says in re.sub(r"[\s│]+", " ", result.stderr)
    assert code == "2" or len(result.stderr.splitlines()) == 1, result.stderr
    assert (files_below(here), files_below(boards)) == before
    assert not (boards / "demo" / "p").exists()


@pytest.mark.parametrize(("content", "says"), [(b"*.pyc\n!keep.pyc\n", "line 2"), (b"\xff", "not UTF-8")])
@pytest.mark.parametrize("command", ["put", "cp"])
def test_a_wrong_ignore_file_is_named(
    run: Run, boards: Path, here: Path, command: str, content: bytes, says: str
) -> None:
    (here / "app" / ".fastflightignore").write_bytes(content)
    result = run(command, "-r", "app", "demo:/t")
    assert (result.exit_code, ".fastflightignore" in result.stderr, says in result.stderr) == (2, True, True)
    assert not (boards / "demo" / "t").exists()


@pytest.mark.parametrize(
    ("path", "answer", "code", "says"),
    [
        ("demo:/data", "y\n", 0, "demo:/data: 3 files, 10 B, 2 folders\n"),
        ("demo:/data", "n\n", 1, "nothing was removed"),
        ("demo:/data", "\x04", 1, "nothing was removed"),
        ("demo:/", "n\n", 1, "demo:/: everything on the device, 6 files, 56 B, 2 folders\n"),
        ("demo:/data/log-*", "y\n", 0, "demo:/data/log-2.csv: 1 file, 4 B\n"),
    ],
)
def test_rm_asks_on_a_terminal_and_says_how_much_it_is(
    boards: Path, here: Path, location: str, path: str, answer: str, code: int, says: str
) -> None:
    pytest.importorskip("pty", reason="only a pseudo-terminal is one")
    from tests.support.terminal import converse

    command = [*FASTFLIGHT, "rm", "-r", path]
    environment = {"FASTFLIGHT_SERVER": location, "COLUMNS": "100"}
    ended, printed = converse(command, [("[y/N]", answer)], environment=environment)
    assert (ended, says in printed) == (code, True), printed
    assert (len(files_below(boards / "demo")) < len(BOARD)) == (code == 0)
