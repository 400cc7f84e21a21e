"""The board as its transport starts it: a child process on the other side of a socket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastflight.simulator.uart import FLOW_CONTROLLED_RING

from .conftest import PATIENCE, BoardClient, Start

PROMPT = b">>> "


def test_it_ends_with_its_line(start: Start) -> None:
    board = start()
    board.read_until(PROMPT)
    assert board.close() == 0


@pytest.mark.parametrize("code", ["while True: pass", "import time\ntime.sleep(1000)", "import sys\nsys.stdin.read(1)"])
def test_it_ends_with_its_line_whatever_it_runs(raw: BoardClient, code: str) -> None:
    raw.send(code.encode() + b"\x04")
    assert raw.read_exactly(2) == b"OK"
    assert raw.close() == 0


def test_it_ends_while_output_waits_for_a_reader(raw: BoardClient) -> None:
    raw.send(b"import sys\nwhile True: sys.stdout.buffer.write(bytes(100000))\x04")
    raw.read_exactly(1_000_000)
    assert raw.close() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the end of a line shows only behind unread bytes")
def test_it_ends_while_input_waits_for_a_reader(raw: BoardClient) -> None:
    raw.send(b"while True: pass\x04")
    raw.read_exactly(2)
    raw.send(bytes(FLOW_CONTROLLED_RING + 60_000))
    assert raw.close() == 0


@pytest.mark.parametrize(
    "wait",
    [
        "while True: pass",
        "import time\ntime.sleep(1000)",
        "import sys\nsys.stdin.buffer.read(1)",
        "import select, sys\np = select.poll()\np.register(sys.stdin, 1)\np.poll()",
        "while True: print('y')",
        "def f():\n  yield from f()\nwhile True:\n  try: list(f())\n  except RuntimeError: pass",
    ],
)
def test_ctrl_c(raw: BoardClient, wait: str) -> None:
    for _ in range(10):
        raw.send(b"print('x')\n" + wait.encode() + b"\x04")
        assert raw.read_until(b"x\r\n") == b"OKx\r\n"
        raw.send(b"\x03\x03")
        answer = raw.read_until(b"\x04>").removesuffix(b"KeyboardInterrupt: \r\n\x04>").replace(b"y\r\n", b"")
        assert answer.startswith(b'\x04Traceback (most recent call last):\r\n  File "<stdin>", line ')
    assert raw.exec("print(1)") == (b"1\r\n", b"")


def test_ctrl_c_whatever_the_moment(raw: BoardClient) -> None:
    """Wherever it strikes, one answer comes of it and the board lives on."""
    for _ in range(200):
        raw.send(b"print('x')\ni = 0\nwhile True:\n i += 1\n\x04")
        raw.read_until(b"x")
        raw.send(b"\x03")
        assert raw.read_until(b"\x04>").endswith(b"KeyboardInterrupt: \r\n\x04>")


def test_ctrl_c_that_is_caught(raw: BoardClient) -> None:
    raw.send(b"try:\n  print('x')\n  while True: pass\nexcept KeyboardInterrupt:\n  print('caught')\n\x04")
    raw.read_until(b"x\r\n")
    raw.send(b"\x03")
    assert raw.read_until(b"\x04>") == b"caught\r\n\x04\x04>"


def test_binary_both_ways(raw: BoardClient) -> None:
    data = bytes(range(256)) * 4000
    code = (
        "import sys, micropython\nmicropython.kbd_intr(-1)\nprint('go')\n"
        f"b = bytearray(32000)\nfor _ in range({len(data) // 32000}):\n"
        "  sys.stdin.buffer.readinto(b)\n  sys.stdout.buffer.write(b)\n"
    )
    raw.send(code.encode() + b"\x04")
    assert raw.read_until(b"go\r\n") == b"OKgo\r\n"
    raw.send(data)
    assert raw.read_exactly(len(data)) == data
    assert raw.read_until(b"\x04>") == b"\x04\x04>"


def test_options_that_make_a_poorer_board(start: Start) -> None:
    board = start("--no-raw-paste", "--without", "hashlib,os.ilistdir", "--heap", "28000")
    board.enter_raw()
    board.send(b"\x05A\x01")
    assert board.read_exactly(3) == b"R\x00>"
    assert board.exec("import os, gc\nprint(hasattr(os, 'ilistdir'), gc.mem_free())") == (b"False 20000\r\n", b"")


def test_telemetry_at_the_prompt(start: Start) -> None:
    board = start("--telemetry", "200")
    board.read_until(PROMPT)
    rows = [json.loads(board.read_until(b"\r\n")) for _ in range(3)]
    assert list(rows[0]) == ["ms", "temperature", "humidity", "battery"]
    assert rows[0]["ms"] <= rows[1]["ms"] <= rows[2]["ms"]
    board.enter_raw()
    assert board.exec("import time\nprint(5)")[0] == b"5\r\n", "no telemetry between the bytes of an answer"
    board.send(b"\x04")
    board.read_until(b"OK\r\nMPY: soft reboot\r\nraw REPL; CTRL-B to exit\r\n>")
    board.send(b"\x02")
    board.read_until(PROMPT)
    board.send(b"1+1\r")
    assert b"{" not in board.read_until(b"2\r\n"), "main.py does not run after a soft reset in raw mode"


def test_the_board_prints_nothing_while_somebody_types_at_its_prompt(start: Start) -> None:
    board = start("--telemetry", "200")
    board.read_until(PROMPT)
    board.read_until(b"\r\n")
    board.send(b"1+1\r")
    board.read_until(b"2\r\n" + PROMPT)
    board.send(b"import time; time.sleep_ms(50); print(5)\r")
    assert b"{" not in board.read_until(b"5\r\n" + PROMPT)


def test_a_paced_line_moves_every_byte(start: Start) -> None:
    board = start("--baud", "921600", "--ring", "4096")
    board.enter_raw()
    code = "import sys\nprint('go')\nb = sys.stdin.buffer.read(3000)\nsys.stdout.buffer.write(b)"
    board.send(code.encode() + b"\x04")
    board.read_until(b"go\r\n")
    data = bytes(byte for byte in range(256) if byte != 3) * 12
    board.send(data[:3000])
    assert board.read_exactly(3000) == data[:3000]


def test_a_paced_line_overflows_when_nobody_reads(start: Start) -> None:
    board = start("--baud", "921600", "--ring", "512")
    board.enter_raw()
    board.send(b"print('go')\nwhile True: pass\x04")
    board.read_until(b"go\r\n")
    board.send(b"print('kept') #".ljust(511, b"x") + b"\x04" + b"x" * 1500 + b"\x03")
    assert board.read_until(b"\x04>").endswith(b"KeyboardInterrupt: \r\n\x04>")
    # What the ring kept is what the REPL now takes for code. Its answer shows that the ring has room again.
    assert board.read_until(b"\x04>") == b"OKkept\r\n\x04\x04>"
    board.send(b"print(len('')\x03x = 1\x04")
    assert board.read_until(b"\x04>") == b"OK\x04\x04>"
    board.send(b"import sys, select\nprint('go')\nwhile True: pass\x04")
    board.read_until(b"go\r\n")
    board.send(b"\x01" * 600 + b"\x03")
    answer = board.read_until(b"KeyboardInterrupt: \r\n\x04>")
    rest = b"".join(board.read_until(b"exit\r\n>") for _ in range(512))
    assert (answer + rest).count(b"raw REPL") == 512, "600 bytes were sent, 512 fit"


FAULTS = ["reset-after-tx=200", "reset-after-rx=20"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reset_in_mid_transfer(start: Start, fault: str) -> None:
    board = start("--fault", fault)
    board.read_until(PROMPT)
    board.send(b"\r\x03\x03\r\x01while True: print('x' * 50)\x04")
    assert b"soft reboot" not in board.read_until(b"information.\r\n" + PROMPT)
    board.enter_raw()
    assert board.exec("print(1)") == (b"1\r\n", b"")


# A board that is not done with starting before it has been asked to reset, and its main thread was poked to.
LATE = """
import fastflight.simulator.__main__ as simulator
poked = []
class Uart(simulator.Uart):
    def __init__(self, *arguments, poke, **options):
        super().__init__(*arguments, poke=lambda: poked.append(poke()), **options)
class Wall(simulator.Wall):
    def install(self):
        while not poked:
            pass
        super().install()
simulator.Uart, simulator.Wall = Uart, Wall
simulator.main()
"""


def test_a_reset_that_strikes_while_the_board_starts(tmp_path: Path) -> None:
    board = BoardClient(tmp_path, "--telemetry", "0", "--fault", "reset-after-rx=1", program=("-c", LATE))
    try:
        board.send(b"\r")
        board.read_until(PROMPT)
        board.enter_raw()
        assert board.exec("print(1)") == (b"1\r\n", b"")
    finally:
        assert board.close() == 0


def test_a_reset_stops_a_program_that_catches_everything(start: Start) -> None:
    board = start("--fault", "reset-after-rx=100")
    board.read_until(PROMPT)
    board.enter_raw()
    code = b"while True:\n  try:\n    while True: pass\n  except BaseException:\n    print('no')\n"
    board.send(code + b"\x04" + b"x" * 100)
    assert b"MicroPython v" in board.read_until(PROMPT)


@pytest.mark.parametrize("fault", ["exit-after-tx=150", "unplug-after-rx=12"])
def test_a_cable_that_is_pulled(start: Start, fault: str) -> None:
    board = start("--fault", fault)
    board.send(b"\r\x03\x03\r\x01print('x' * 500)\x04")
    with pytest.raises((EOFError, ConnectionResetError)):
        board.read_until(b"never")
    assert board.process.wait(PATIENCE) == 3


def test_capacity(start: Start) -> None:
    board = start("--capacity", "600000")
    board.enter_raw()
    _, error = board.exec("f = open('new', 'wb')\nwhile True: f.write(bytes(10000))")
    assert error.endswith(b"OSError: [Errno 28] ENOSPC\r\n")
    output, _ = board.exec("import os\ns = os.statvfs('/')\nprint(s[0] * s[2], s[3] < 4)")
    assert output == b"598016 True\r\n"


def test_bytes_are_lost_while_the_flash_is_busy(start: Start) -> None:
    board = start("--fault", "flash-stall=500", "--baud", "921600", "--ring", "256")
    board.enter_raw()
    # One is read before it says that it is done: else the end of the line may find a full ring, and be lost as well.
    code = "import sys\nf = open('new', 'wb')\nprint('go')\nf.write(b'x')\nsys.stdin.buffer.read(1)\nprint('done')\n"
    board.send(code.encode() + b"print(len(sys.stdin.buffer.readline()))\x04")
    board.read_until(b"go\r\n")
    board.send(b"y" * 1000)
    board.read_until(b"done\r\n")
    board.send(b"\n")
    assert board.read_until(b"\r\n") == b"256\r\n", "a full ring, and what came when there was room again"


@pytest.mark.parametrize("options", [["--fault", "nonsense"], ["--fault", "drop-rx=x"], ["--baud", "fast"], []])
def test_a_wrong_command_line(tmp_path: Path, options: list[str]) -> None:
    command = [sys.executable, "-m", "fastflight.simulator", "--files", str(tmp_path), *options]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, env=os.environ)
    assert done.returncode == 2
    assert b"usage:" in done.stderr


def test_starting_loads_nothing_heavy() -> None:
    heavy = "{'pyarrow', 'numpy', 'pydantic', 'asyncio', 'inspect'}"
    code = f"import fastflight.simulator.__main__, sys; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=PATIENCE).stdout
        == b"[]\n"
    )
