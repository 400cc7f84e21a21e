"""The pages of the tutorial, the how-tos and README do what they show."""

from __future__ import annotations

import ast
import contextlib
import html
import importlib.util
import io
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.app.config import RecordingSettings
from fastflight.app.overlay import read_config
from fastflight.cli import server_options
from fastflight.cli.main import COMMANDS, app, load
from fastflight.client import FastFlightClient
from tests.docs.site_pages import ALL, DOCS, HTTP, README, ROOT, RUN, SERVER, Block, blocks, commands, devices, lines
from tests.support.servers import config
from tests.support.terminal_recording import COMMANDS as COMMANDS_OF_RECORDING
from tests.support.waiting import until

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?!:)")
# What doctor prints depends on the machine.
UNSTABLE = ("fastflight doctor",)


@dataclass(frozen=True)
class Site:
    """The addresses of the server of a page."""

    flight: str
    http: str

    def here(self, text: str) -> str:
        """Return a text of the page with the addresses of this server."""
        return text.replace(SERVER, self.flight).replace(HTTP, self.http)


@contextmanager
def serving(page: str, folder: Path) -> Iterator[Site]:
    names = devices(page)
    recorded = tuple(names) if "<!-- recorded -->" in page else ()
    settings = config(
        dict.fromkeys(names, "sim:"),
        http=("127.0.0.1", 0),
        recordings=RecordingSettings(folder=folder / "recordings"),
        record=recorded,
    )
    with open_server(settings) as running:
        assert running.http is not None
        for name in names:
            wait_until_heard(running.location, name)
        for name in recorded:
            wait_until_recorded(running.location, name)
        yield Site(running.location, running.http)


def wait_until_heard(location: str, device: str) -> None:
    """Return when the line of a device is open, and its telemetry has begun."""
    with FastFlightClient(location) as client, client.session(device, format="lines", since_seq=0) as rows:
        for batch in rows:
            if '"temperature"' in "".join(batch["text"].to_pylist()):
                return


def wait_until_recorded(location: str, device: str) -> None:
    """Return when some rows are on the disk, besides what the board printed when it started."""
    with FastFlightClient(location) as client:
        until(lambda: client.recording(device, format="lines").to_arrow().num_rows > 8)


def name_of(path: Path) -> str:
    return path.stem if path == README else f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_a_page_does_what_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text(encoding="utf-8")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    names: dict[str, object] = {}
    node, skipped = shutil.which("node"), ""
    Path("main.py").write_text("print('hello')\n")
    Path("app/lib").mkdir(parents=True)
    for name, content in {"main.py": "import lib.a", "lib/a.py": "print(1)", "lib/__init__.py": ""}.items():
        Path("app", name).write_text(content)
    with serving(text, tmp_path) as site:
        monkeypatch.setenv("FASTFLIGHT_SERVER", site.flight)
        for block in blocks(text):
            if block.comment == "not run":
                continue
            if block.language == "console":
                with plugged_in(monkeypatch) if block.comment == "no server" else contextlib.nullcontext():
                    run_transcript(block.content, site, block.comment)
            elif block.language == "sh":
                for line in lines(block.content):
                    if line.startswith("curl "):
                        run_in_shell(f"{line} -f -s -S", site)
            elif block.comment == "main.py":
                run_on_board(block.content, site, devices(text)[0])
            elif block.language == "js":
                if node is None:
                    skipped = "needs Node 20 or newer"
                else:
                    run_in_node(node, site.here(block.content))
            elif block.language == "python":
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(site.here(block.content), names)
                assert block.printed is None or out.getvalue() == block.printed, block.content
    if skipped:  # only now: all else of the page holds
        pytest.skip(skipped)


@contextmanager
def plugged_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No server runs at the default address, and one board is plugged in: a simulated one."""
    board = ListPortInfo("sim:")
    board.vid, board.pid, board.serial_number = 0x2E8A, 0x0005, "e6605838"
    with monkeypatch.context() as patched, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        patched.delenv("FASTFLIGHT_SERVER", raising=False)
        patched.setattr(server_options, "DEFAULT_LOCATION", f"grpc://127.0.0.1:{unused.getsockname()[1]}")
        patched.setattr(list_ports, "comports", lambda: [board])
        yield


def run_transcript(transcript: str, site: Site, comment: str) -> None:
    """Run each command of a transcript, and compare what it prints with what the page shows."""
    here = {} if comment == "no server" else {"FASTFLIGHT_SERVER": site.flight}
    for shown in re.split(r"(?m)^\$ ", transcript)[1:]:
        command, _, expected = shown.partition("\n")
        if command in UNSTABLE:
            continue
        if re.fullmatch(r"fastflight get \S+", command):  # a table on a terminal, and bytes in a pipe
            assert run_at_terminal(command, here) == expected, command
            continue
        if command.startswith("fastflight ") and "|" not in command:
            done = CliRunner().invoke(app, shlex.split(command)[1:], env=here)
            code, output = done.exit_code, done.output
        else:
            code, output = 0, run_in_shell(command, site)
        assert code == 0 or "error: " in expected, f"{command}: {output}"
        assert comment == "varies" or TIME.sub("DATE", output).rstrip() == TIME.sub("DATE", expected).rstrip(), command


def run_at_terminal(command: str, environment: dict[str, str]) -> str:
    from tests.support.terminal import terminal  # not at the top: Windows has none

    with pytest.MonkeyPatch.context() as patched, terminal() as end:
        for name, value in {**environment, "TERM": "dumb", "COLUMNS": "120"}.items():
            patched.setenv(name, value)
        with pytest.raises(SystemExit):
            app(shlex.split(command)[1:])
        lines = [line.rstrip() for line in end().splitlines()]
    return "".join(f"{line}\n" for line in lines if line)  # the progress bar leaves an empty line


def run_in_shell(command: str, site: Site) -> str:
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", site.here(command)],
        env={**os.environ, "PATH": paths, "FASTFLIGHT_SERVER": site.flight},
        capture_output=True,
        encoding="utf-8",
        errors="replace",  # a page shows how to get an Arrow stream
        check=False,
    )
    assert ran.returncode == 0, f"{command}: {ran.stderr}"
    return ran.stdout + ran.stderr


def run_in_node(node: str, script: str) -> None:
    command = [node, "--no-warnings", "--input-type=module", "-e", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr, ran.stdout.count("\n")) == (0, "", 3), ran.stdout


def run_on_board(program: str, site: Site, device: str) -> None:
    """Have a board run a program that prints JSON lines, as its `main.py`, until it has printed one."""
    Path("main.py").write_text(program)
    with FastFlightClient(site.flight) as client:
        client.put_file(device, "/main.py", "main.py")
        client.reset(device)
        with client.session(device, format="jsonl", schema={"ms": "int64", "temperature": "double"}) as rows:
            for batch in rows:
                if 21.5 in batch["temperature"].to_pylist():
                    break
        client.exec(device, "", interrupt=True).to_arrow()


def all_blocks(*languages: str) -> Iterator[tuple[Path, Block]]:
    """Yield each block in one of these languages, with its page."""
    for path in ALL:
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.language in languages:
                yield path, block


def test_the_commands_of_all_pages_exist() -> None:
    """With options that they have. What needs a real board, or another computer, cannot be run here."""
    for path, block in all_blocks("sh", "console", "ini"):
        shown = block.content.replace("ExecStart=/usr/local/bin/", "")
        if block.language == "console":
            shown = "\n".join(re.findall(r"(?m)^\$ (fastflight [^|\n]*)", shown))
        if block.language == "ini":
            shown = "\n".join(re.findall(r"(?m)^fastflight .*", shown))
            assert shown
        for name, *arguments in commands(shown):
            try:
                check_usage(name, arguments)
            except Exception as error:
                error.add_note(f"{path}: fastflight {name}")
                raise


def test_the_modules_and_tests_of_all_pages_exist() -> None:
    for path, block in all_blocks("sh"):
        for line in lines(block.content):
            for module in re.findall(r"python3? -m (\S+)", line):
                assert importlib.util.find_spec(module) is not None, (path, line)
            for tests in re.findall(r"pytest (tests/\S+)", line):
                assert (ROOT / tests).exists(), (path, line)


def test_the_python_of_all_pages_can_be_compiled() -> None:
    for path, block in all_blocks("python"):
        compile(block.content, path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def check_usage(name: str, arguments: list[str]) -> None:
    if name.startswith("-"):
        return
    assert name in COMMANDS, f"fastflight {name}"
    command = load(name)
    if below := getattr(command, "commands", None):
        # `fastflight devices` is short for `fastflight devices list`.
        name, *arguments = arguments if arguments and arguments[0] in below else ["list", *arguments]
        assert name in below, f"{command.name} {name}"
        command = below[name]
    # Raises for an option that does not exist, a value that is not allowed, an argument that is missing.
    command.make_context(name, list(until_redirected(arguments)))


def until_redirected(words: list[str]) -> Iterator[str]:
    for word in words:
        if word in (">", "&", "&&", "|", ";"):
            return
        yield word


def test_the_fleet_files_of_all_pages_are_valid(tmp_path: Path) -> None:
    for path, block in all_blocks("toml"):
        file = tmp_path / f"{path.stem}.toml"
        # A page may show a part: tables that name no device need one to be a fleet file.
        spare = "" if "[devices." in block.content else '[devices.spare]\nurl = "sim:"\n'
        file.write_text(f"{spare}{block.content}")
        location = "grpc+tls://127.0.0.1:8815" if "[tls]" in block.content else SERVER
        read_config(location, [], file, http="8000")


def test_the_recording_of_a_terminal_shows_commands_that_exist() -> None:
    shown = html.unescape((DOCS / "terminal.svg").read_text(encoding="utf-8")).replace("\xa0", " ")
    for command in COMMANDS_OF_RECORDING:
        assert f">{command}</text>" in shown, "run python -m tests.support.terminal_recording docs/terminal.svg"
        _, name, *arguments = shlex.split(command)
        check_usage(name, arguments)
    assert "url(http" not in shown  # it loads nothing from elsewhere


def test_every_link_leads_somewhere() -> None:
    """For pages as they are in the repository. The build of the site checks the same with `mkdocs build --strict`."""
    made = {"internals/benchmark.md", "internals/campaigns.md", "notebook.md", "live.md"}
    for path in ALL:
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target) or target.startswith("#"):
                continue
            there = (path.parent / target.partition("#")[0]).resolve()
            assert there.exists() or str(there.relative_to(DOCS)) in made, (path, target)
