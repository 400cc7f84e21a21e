"""Requests while the board's program goes on: aiorepl and the agent, on the simulated board and on MicroPython."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest

from fastflight.concurrency import Shard
from fastflight.device import Device, Session
from fastflight.errors import BusyError, DeviceException, FileMissing, TransportTimeout
from fastflight.protocol import agent_frames as frames
from fastflight.transport import Port, parse_url
from fastflight.transport.chunk_buffer import Chunk
from tests.support import targets
from tests.support.board_aiorepl import SOURCE
from tests.support.waiting import until

AGENT = (resources.files("fastflight.device") / "agent/fastflight_agent.py").read_bytes()
MEMORY = Path(targets.__file__).with_name("wasm_memory.mjs")
PROGRAM = Path(targets.__file__).with_name("wasm_program.mjs")

ROWS = """\
async def rows():
    global number
    while True:
        print("row", number)
        number += 1
        await asyncio.sleep_ms(20)

"""
# The programs of boards, by what they offer. `run` starts the main coroutine: MicroPython in WebAssembly has no
# `asyncio.run`.
PROGRAMS = {
    "aiorepl": "import asyncio, aiorepl\nnumber = 0\n" + ROWS + "asyncio.create_task(rows())\n{run}(aiorepl.task())\n",
    "task": "import asyncio, fastflight_agent\nnumber = 0\n"
    + ROWS
    + "asyncio.create_task(fastflight_agent.task())\n{run}(rows())\n",
    "timer": "import time, fastflight_agent\nnumber = 0\nwhile True:\n"
    " print('row', number)\n number += 1\n time.sleep(0.02)\n",
}
BESIDE = {"aiorepl": "aiorepl", "task": "agent", "timer": "agent"}
CONTENT = bytes(range(256)) * 9
LONGER = (2 * CONTENT)[:4095]


@dataclass
class Running:
    """A board whose program runs, and its device."""

    device: Device
    kind: str

    def rows(self) -> list[int]:
        """The numbers of the rows that its session shows, which must be complete lines."""
        text = b"".join(
            each.data
            for each in self.device.tap.reader(seq=0).rest()
            if isinstance(each, Chunk) and each.direction == "rx"
        )
        lines = text.replace(b"\r", b"").split(b"\n")[:-1]
        if self.kind == "aiorepl":  # what it prints before the first request
            lines = [line.removeprefix(b"--> ") for line in lines if line != b"Starting asyncio REPL..."]
        assert all(re.fullmatch(rb"row \d+", line) for line in lines), lines
        return [int(line[4:]) for line in lines]


# For what goes on beside the program to answer on a busy computer.
PATIENCE = 30.0


@contextmanager
def running(
    folder: Path, kind: str, *, real: bool = False, options: str = "", known: bool = True, answers: bool = True
) -> Iterator[Running]:
    """Start the program `kind` on a simulated board, or with `real` in the WebAssembly VM.

    `known`: that its program runs the agent. `answers`: it goes on to the end of the test, and so nothing has to be
    given up.
    """
    (folder / "fastflight_agent.py").write_bytes(AGENT)
    (folder / "main.py").write_text(PROGRAMS[kind].format(run="await " if real else "asyncio.run"))
    if kind == "aiorepl":
        (folder / "aiorepl.py").write_text(SOURCE)
    url = f"sim:?files={folder}&telemetry=0{options}"
    if real:
        with targets.webassembly() as repl:
            node, _, package, *_ = shlex.split(repl.removeprefix("exec:"))
            url = "exec:" + shlex.join([node, str(PROGRAM), package, str(folder / "main.py")])
    with Shard("board") as shard, pytest.MonkeyPatch.context() as patch:
        if answers:
            patch.setattr("fastflight.device.board.AGENT_SECONDS", PATIENCE)
            patch.setattr("fastflight.protocol.agent.ANSWER_SECONDS", PATIENCE)
            patch.setattr("fastflight.protocol.raw_repl.ANSWER_SECONDS", PATIENCE)
        device = Device("board", parse_url(url), shard=shard, agent=known and BESIDE[kind] == "agent")
        started = Running(device, kind)
        try:
            if real or answers:
                with device.listen():  # a request that comes before the program has begun is for the prompt
                    until(started.rows)
            yield started
        finally:
            device.close()


@pytest.mark.parametrize(
    ("kind", "real"),
    [(kind, False) for kind in PROGRAMS]
    + [pytest.param(kind, True, marks=pytest.mark.firmware) for kind in ("aiorepl", "task")],
)
def test_requests_work_and_the_program_goes_on_undisturbed(tmp_path: Path, kind: str, real: bool) -> None:
    with running(tmp_path, kind, real=real) as board, board.device.listen():
        with board.device.lease("a test") as session:
            first = int(session.exec("print(number)").stdout)
            assert session.info().capabilities == BESIDE[kind]
            session.exec("n = m = a = k = f = sys = 'mine'")
            use_files(session)
            assert b"".join(session.follow("for i in range(3): print(i)")).split() == [b"0", b"1", b"2"]
            assert b"ZeroDivisionError" in session.exec("print(1)\n1 / 0").stderr
            with pytest.raises(DeviceException):
                list(session.follow("not code"))
            assert session.exec("print(n, m, a, k, f, sys)").stdout.split() == [b"mine"] * 6
            until(lambda: int(session.exec("print(number)").stdout) > first)
        # No row of the program is lost or mixed with answers.
        seen = len(board.rows())
        until(lambda: len(board.rows()) > seen + 3)
        with board.device.lease("a test") as session:
            last = int(session.exec("print(number)").stdout)
        rows = until(lambda: found if (found := board.rows())[-1] >= last else None)
    assert rows == list(range(len(rows)))


def use_files(session: Session) -> None:
    session.mkdir("/data")
    written = session.write("/data/new.bin", [CONTENT[:1000], CONTENT[1000:]])
    assert (written.bytes, written.verified) == (len(CONTENT), "sha256")
    assert b"".join(session.read("/data/new.bin")) == CONTENT
    assert b"".join(session.read("/data/new.bin", offset=70, limit=2000)) == CONTENT[70:2070]
    assert session.hash("/data/new.bin") == ("sha256", written.sha256)
    assert [each.path for each in session.hashes("/data")] == ["/data/new.bin"]
    tree = session.write_tree("/data", [("a.txt", [b"one"]), ("b/c.txt", [b"two"])])
    assert [path for path, _ in tree.files] == ["/data/a.txt", "/data/b/c.txt"]
    assert [each.path for each in session.list("/data")] == ["/data/a.txt", "/data/b", "/data/new.bin"]
    session.write("/data/b/d.bin", [LONGER])  # with c.txt more than one command hashes
    contents = {"a.txt": b"one", "b/c.txt": b"two", "b/d.bin": LONGER, "new.bin": CONTENT}
    expected = {f"/data/{path}": hashlib.sha256(content).hexdigest() for path, content in contents.items()}
    assert {each.path: each.digest for each in session.hashes("/data")} == expected
    session.remove("/data/a.txt")
    with pytest.raises(FileMissing):
        list(session.read("/data/a.txt"))


@pytest.mark.parametrize("kind", ["timer", "task"])
def test_a_host_that_stops_within_a_frame_does_not_stop_the_program(tmp_path: Path, kind: str) -> None:
    with running(tmp_path, kind, answers=False) as board, board.device.listen():
        until(board.rows)
        with board.device.line("another host") as line:
            asyncio.run(line.awrite(frames.to_board(frames.RUN, 7, b"x" * 100)[:50], 1.0))
        seen = len(board.rows())
        until(lambda: len(board.rows()) > seen + 5)
        with board.device.lease("a test") as session:
            assert session.exec("print(6 * 7)").stdout == b"42\n"


@pytest.mark.parametrize("kind", PROGRAMS)
def test_an_interrupt_ends_the_program_and_what_answers_beside_it(tmp_path: Path, kind: str) -> None:
    with running(tmp_path, kind, answers=False) as board:
        for interrupt, beside in ((False, BESIDE[kind]), (True, "none"), (False, "none")):
            with board.device.lease("a test", interrupt=interrupt) as session:
                assert session.info().capabilities == beside


@pytest.mark.parametrize("kind", ["task", "timer"])
def test_an_interrupted_agent_leaves_the_input_to_the_prompt(tmp_path: Path, kind: str) -> None:
    with running(tmp_path, kind, options="&soft-timers=1", answers=False) as board:
        with board.device.listen():  # the agent may answer before the program has begun to count
            until(lambda: len(board.rows()) > 1)
        with board.device.lease("a test") as session:
            assert session.info().capabilities == "agent"
        with board.device.lease("a test", interrupt=True):
            shown = b"".join(each.data for each in board.device.tap.reader(seq=0).rest() if isinstance(each, Chunk))
            assert b"KeyboardInterrupt" in shown
            assert shown.count(b">>> ") < 3, "more than one attempt to reach the prompt"
        for number in range(3):
            with board.device.lease("a test", interrupt=True) as session:
                assert session.info().capabilities == "none"
                session.write(f"/{number}.bin", [CONTENT])
                assert b"".join(session.read(f"/{number}.bin")) == CONTENT
                assert session.exec("print(number > 0)").stdout == b"True\r\n"
        with board.device.lease("a test", interrupt=True) as session:
            session.hard_reset()


def test_code_without_end_is_interrupted_and_the_program_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, "timer", answers=False) as board, board.device.lease("a test") as session:
        with pytest.raises(TransportTimeout):
            session.exec("while True: pass", timeout=0.5)
        assert session.exec("print(number)").stdout != b""


def test_the_agent_is_found_by_its_announcement(tmp_path: Path) -> None:
    with running(tmp_path, "timer", known=False) as board, board.device.listen():
        until(board.rows)
        with board.device.lease("a test") as session:
            assert session.info().capabilities == "agent"


def test_a_program_is_not_interrupted_after_its_agent_was_given_up(tmp_path: Path) -> None:
    with running(tmp_path, "timer", answers=False) as board:
        with board.device.lease("a test"):
            port = board.device._line.port
        board.device._board.dirty = True
        board.device._give_up(TransportTimeout("the agent on the board does not answer"))
        assert port is not None
        port.close()
        with board.device.lease("a test") as session:
            assert session.info().capabilities == "agent"


def test_a_lossy_line_changes_no_file(tmp_path: Path) -> None:
    faults = "&fault=lose-rx=4000&fault=flip-rx=9000&fault=lose-tx=6000&fault=flip-tx=12000"
    content = os.urandom(20_000)
    with running(tmp_path, "timer", options=faults, answers=False) as board, board.device.lease("a test") as session:
        session.write("/new.bin", [content])
        assert b"".join(session.read("/new.bin")) == content
    assert (tmp_path / "new.bin").read_bytes() == content
    assert board.device.retries > 0


@pytest.mark.firmware
def test_the_microbit_refuses() -> None:
    with targets.microbit() as url:
        device = Device("board", parse_url(url))
        try:
            with device.lease("a test") as session:
                session.write("/main.py", [b"from microbit import sleep\nwhile True:\n sleep(50)\n"])
                session.soft_reset()
            with pytest.raises(BusyError, match="aiorepl.*agent install"), device.lease("a test"):
                pass
            with device.lease("a test", interrupt=True) as session:
                assert session.info().capabilities == "none"
        finally:
            device.close()


def test_the_agent_is_small() -> None:
    assert len(AGENT) < 6000


@pytest.mark.firmware
def test_the_agent_takes_little_memory() -> None:
    file = resources.files("fastflight.device") / "agent/fastflight_agent.py"
    with targets.webassembly() as url, resources.as_file(file) as path:
        node, _, package, *_ = shlex.split(url.removeprefix("exec:"))
        size = subprocess.run([node, str(MEMORY), package, str(path)], capture_output=True, timeout=60, check=True)
    assert 1000 < int(size.stdout) < 4096


@pytest.mark.parametrize("leaves_with", [b"\x03", b"\r\x03"])
def test_a_tool_that_knows_no_agent_has_the_prompt(tmp_path: Path, leaves_with: bytes) -> None:
    """The timer of the agent goes on when its program has ended."""
    with running(tmp_path, "timer", options="&soft-timers=1", answers=False) as board:
        with board.device.listen():
            until(lambda: len(board.rows()) > 1)

        async def use_its_prompt(line: Port) -> None:
            steps = [(leaves_with, b">>> "), (b"\x01", b"raw REPL; CTRL-B to exit\r\n>")]
            steps += [(b"print('step %d')\x04" % n, b"OKstep %d\r\n\x04\x04>" % n) for n in range(20)]
            lost = 0
            for keys, expected in (*steps, (b"\x02", b">>> ")):
                said = b""
                while expected not in said:
                    # A board that stood still for a period of the timer has lost a key to the agent, which has left.
                    assert lost <= 1
                    said = b""
                    await line.awrite(keys, 1.0)
                    with contextlib.suppress(TransportTimeout):
                        while expected not in said and not said.endswith(b"isn't defined\r\n\x04>"):
                            said += await line.aread(5.0)
                    lost += expected not in said

        with board.device.line("a tool") as line:
            line.portal.call(use_its_prompt(line))
