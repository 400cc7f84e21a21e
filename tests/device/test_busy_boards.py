"""A board whose program never reads its input can be interrupted, however often it has been asked politely.

An interrupt lets the program clean up, and ends a loop that catches it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastflight.concurrency import Shard
from fastflight.device import Device, Inventory
from fastflight.device.unread_input import BUDGET_BYTES, Reader
from fastflight.errors import BusyError, TransportError, TransportTimeout
from fastflight.protocol.raw_repl import GRACE_SECONDS
from fastflight.transport import parse_url
from fastflight_benchmark.simulated import SimulatedBoard
from tests.device.content import CONTENT
from tests.support.chaos import ChaosProxy
from tests.support.refusals import refused
from tests.support.waiting import until

# What a program gets that does not clean up.
SHORT_GRACE = 0.3
# The smallest ring of firmware with USB.
LINE = "telemetry=0&hold=1&ring=127"
PRINTS = """\
import json, time
while True:
    print(json.dumps({"celsius": 21.5, "ms": time.ticks_ms()}))
    time.sleep(0.01)
"""
SILENT = "while True:\n    pass\n"
PROMPTS = "import time\nwhile True:\n    print('>>> ', end='')\n    time.sleep(0.01)\n"
AIOREPLS = "import time\nwhile True:\n    print('\\n--> ', end='')\n    time.sleep(0.01)\n"
# Each program, and whether the device is known to run the agent. `tests/device/test_unread_input.py` has the budget.
PROGRAMS = {
    "prints": (PRINTS, False),
    "prints, agent": (PRINTS, True),
    "silent": (SILENT, False),
    "prints prompts, agent": (PROMPTS, True),
    "prints the prompt of aiorepl": (AIOREPLS, False),
}
# More requests than the budget allows if each sent one byte.
TIMES = BUDGET_BYTES + 2
# The first line of a program whose start must be waited for.
BEGUN = "open('/begun', 'w').close()\n"


@contextmanager
def running(folder: Path, program: str, *, agent: bool = False, grace: float = GRACE_SECONDS) -> Iterator[Device]:
    (folder / "main.py").write_text(program)
    with Shard("board") as shard:
        device = Device("board", parse_url(f"sim:?files={folder}&{LINE}"), shard=shard, agent=agent, grace=grace)
        try:
            yield device
        finally:
            device.close()


@contextmanager
def reached(url: str) -> Iterator[Device]:
    with Inventory({}) as inventory:
        inventory.add("board", url, grace=SHORT_GRACE)
        yield inventory.device("board")


def refuse(device: Device, times: int) -> None:
    for _ in range(times):
        with pytest.raises(BusyError, match="a program is running"), device.lease("a polite request"):
            pass


@contextmanager
def impatient() -> Iterator[None]:
    """Requests wait for a board's answer as short as they can."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastflight.device.board.BOOT_SECONDS", 0.3)
        patch.setattr("fastflight.device.board.PROMPT_SECONDS", 0.05)
        patch.setattr("fastflight.device.board.AGENT_SECONDS", 0.05)
        patch.setattr("fastflight.device.board.BUSY_AGENT_SECONDS", 0.05)
        patch.setattr("fastflight.protocol.raw_repl.ANSWER_SECONDS", 0.05)
        yield


def start(device: Device, folder: Path) -> None:
    """Open the line, and wait until the program has begun."""
    with impatient():
        refuse(device, 1)
    until((folder / "begun").exists)


@pytest.mark.parametrize(("program", "agent"), PROGRAMS.values(), ids=PROGRAMS)
def test_refused_requests_leave_the_board_within_reach(tmp_path: Path, program: str, agent: bool) -> None:
    with running(tmp_path, program, agent=agent) as device:
        counts: list[int] = []
        count = device._line.unread.sent
        device._line.unread.sent = lambda size: (counts.append(size), count(size))[1]  # type: ignore[method-assign]
        with impatient():
            refuse(device, TIMES - 1)
            with refused(BusyError, where="board", holder="the board's own program") as refusal:
                with device.lease("a polite request"):
                    pass
        assert re.search("interrupt=true.*aiorepl.*agent install", str(refusal.value))
        assert 0 < sum(counts) <= BUDGET_BYTES
        with device.lease("an interrupt", interrupt=True) as session:
            assert session.exec("print(6 * 7)").stdout == b"42\r\n"
            session.soft_reset()
        with impatient():
            refuse(device, 3)
        with device.lease("an interrupt", interrupt=True) as session:
            session.hard_reset()
        with impatient():
            refuse(device, 3)
        for interrupt in (True, False):
            with device.lease("a request", interrupt=interrupt) as session:
                assert session.exec("print(6 * 7)").stdout == b"42\r\n"


def test_a_board_whose_program_prints_is_not_taken_for_a_device_that_only_prints(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(PRINTS)
    with SimulatedBoard(tmp_path, 0, listen="127.0.0.1:0") as board:
        with reached(f"socket://127.0.0.1:{board.path.rpartition(':')[2]}") as device:
            with impatient():
                refuse(device, 3)
            assert device.kind == "unknown"
            with device.lease("an interrupt", interrupt=True) as session:
                assert [entry.path for entry in session.list("/")] == ["/main.py"]
                session.soft_reset()
            with impatient():
                refuse(device, 3)
            assert device.kind == "micropython"


def test_micropython_whose_program_prints_is_not_taken_for_a_device_that_only_prints(unix_port: str) -> None:
    with Inventory({"board": unix_port}) as inventory, inventory.device("board").lease("a program") as session:
        session.write("/main.py", [PRINTS.encode()])
    with Inventory({"board": f"{unix_port} --main"}) as inventory:
        device = inventory.device("board")
        with impatient():
            refuse(device, 3)
        assert device.kind == "unknown"
        with device.lease("an interrupt", interrupt=True) as session:
            assert [entry.path for entry in session.list("/")] == ["/main.py"]
        assert device.kind == "micropython"
        with device.lease("after it") as session:
            assert session.info().kind == "micropython"


CLEANS = f"""\
import time
try:
    {BEGUN}
    while True:
        time.sleep(0.1)
finally:
    open('/cleaning', 'w').close()
    time.sleep(1.5)
    open('/cleaned', 'w').close()
"""


def test_an_interrupt_lets_the_program_clean_up(tmp_path: Path) -> None:
    with running(tmp_path, CLEANS) as device:
        start(device, tmp_path)
        with device.lease("an interrupt", interrupt=True) as session:
            assert {"/cleaning", "/cleaned"} <= {entry.path for entry in session.list("/")}


@pytest.mark.parametrize("work", ["pass", "print(number)"])
def test_a_loop_that_catches_every_exception_is_ended(tmp_path: Path, work: str) -> None:
    program = f"import time\nnumber = 0\n{BEGUN}while True:\n    try:\n        number += 1\n        {work}\n"
    # A Ctrl-C that comes while it handles another one ends it. A slow chip takes a while for that. Here the handler
    # waits 50 ms: many pauses of a burst, also on a busy computer.
    program += "    except:\n        time.sleep(0.05)\n"
    with running(tmp_path, program, grace=SHORT_GRACE) as device:
        start(device, tmp_path)
        with device.lease("an interrupt", interrupt=True) as session:
            assert session.exec("print(6 * 7)").stdout == b"42\r\n"


def test_a_program_that_cannot_be_ended_is_said_to_catch_it(tmp_path: Path) -> None:
    program = f"import micropython\nmicropython.kbd_intr(-1)\n{BEGUN}while True:\n    pass\n"
    with running(tmp_path, program, grace=SHORT_GRACE) as device, impatient():
        start(device, tmp_path)
        refusal = pytest.raises(TransportTimeout, match="catches KeyboardInterrupt.*DTR or RTS.*1200 baud")
        with refusal, device.lease("an interrupt", interrupt=True):
            pass


def test_a_board_is_asked_again_when_its_prompt_has_come_back(tmp_path: Path) -> None:
    program = f"import sys\n{BEGUN}while sys.stdin.read(1) != 'e':\n    pass\n"
    with running(tmp_path, program) as device:
        start(device, tmp_path)
        with impatient():
            refuse(device, 1)
        asyncio.run(device._line.port.awrite(b"e", 20.0))  # type: ignore[union-attr]
        with device.listen():
            # Bytes that nobody waits for are handed over when somebody looks at the tap.
            until(lambda: device.tap.heard_ns and device._line.unread.reader is Reader.REPL)
        with device.lease("a polite request") as session:
            assert session.exec("print(6 * 7)").stdout == b"42\r\n"


# In the code, a header, a block; between two of them, the digest's answer; and in a short file.
@pytest.mark.parametrize(
    ("at", "options"), [(800, ()), (2_500, ("--no-interrupt",)), (4_321, ()), (11_000, ("--no-interrupt",))]
)
def test_a_write_that_a_host_broke_off_is_ended_by_an_interrupt(
    tmp_path: Path, at: int, options: Sequence[str]
) -> None:
    size = 900 if at == 800 else len(CONTENT)
    with SimulatedBoard(tmp_path / "board", 0, *options, listen="127.0.0.1:0") as board:
        (board.folder / "t.bin").write_bytes(b"old")
        with ChaosProxy("127.0.0.1", int(board.path.rpartition(":")[2]), [f"cut:out@{at}"]) as proxy:
            url = f"socket://127.0.0.1:{proxy.port}"
            with reached(url) as device, pytest.raises(TransportError), device.lease("a test") as session:
                session.write("/t.bin", iter((CONTENT[:size],)))
            assert (board.folder / "t.bin").read_bytes() == b"old"
            with reached(url) as device:
                with impatient(), pytest.raises(BusyError), device.lease("a polite request"):
                    pass
                with device.lease("an interrupt", interrupt=True) as session:
                    session.write("/t.bin", iter((CONTENT,)))
        assert (board.folder / "t.bin").read_bytes() == CONTENT


def test_a_board_may_still_wait_for_what_a_lost_line_has_cut_off(tmp_path: Path) -> None:
    with SimulatedBoard(tmp_path / "board", 0, "--no-interrupt", listen="127.0.0.1:0") as board:
        with ChaosProxy("127.0.0.1", int(board.path.rpartition(":")[2]), ["cut:out@11000"]) as proxy:
            with reached(f"socket://127.0.0.1:{proxy.port}") as device:
                with pytest.raises(TransportError), device.lease("a test") as session:
                    session.write("/t.bin", iter((CONTENT,)))
                for _ in range(2):
                    with impatient(), pytest.raises(BusyError, match="the line was lost"), device.lease("a request"):
                        pass
                with device.lease("an interrupt", interrupt=True) as session:
                    session.write("/t.bin", iter((CONTENT,)))
