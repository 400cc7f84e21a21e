"""The REPLs as transcripts: what goes in, what comes out, to the byte.

The transcripts of expressions, blocks, paste mode, errors and the raw REPL were compared with MicroPython 1.27.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.simulator.board import Board
from fastflight.simulator.mounts import MountingFiles
from fastflight.simulator.repl import MAX_CODE, RAW_BANNER, is_hopeless
from fastflight.simulator.runtime import BANNER, Runtime
from fastflight.simulator.uart import LineClosed, Uart

HELLO = (BANNER + 'Type "help()" for more information.\r\n').encode()
PROMPT = b">>> "


class ReplBench:
    """A board that is fed everything at once and runs until it wants more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = bytearray()

    def run(self, data: bytes, *, raw_paste: bool = True, without: str = "") -> bytes:
        """All that the board sends from power on, given `data`."""
        self.output.clear()
        uart = Uart(self.output.extend)
        files = MountingFiles(str(self.folder), capacity=1 << 20, heap=lambda: 100_000)
        missing = frozenset(without.split(",")) if without else frozenset()
        board = Board(uart, lambda: Runtime(uart, files, without=missing), raw_paste=raw_paste)
        uart.arrive(data)
        uart.hang_up()
        with pytest.raises(LineClosed):
            board.run()
        return bytes(self.output)

    def typed(self, keys: str) -> bytes:
        """What follows the first prompt, given keys at the friendly REPL."""
        output = self.run(keys.encode())
        assert output.startswith(HELLO + PROMPT)
        return output[len(HELLO + PROMPT) :]

    def raw(self, data: bytes) -> bytes:
        """What follows the first `>` of the raw REPL."""
        start = HELLO + PROMPT + b"\r\n" + RAW_BANNER + b">"
        output = self.run(b"\x01" + data)
        assert output.startswith(start)
        return output[len(start) :]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ReplBench]:
    import sys

    hook = sys.displayhook
    yield ReplBench(tmp_path)
    sys.displayhook = hook


TRACE = b'Traceback (most recent call last):\r\n  File "<stdin>", line '
FRIENDLY = {
    "expression": ("1+1\r", b"1+1\r\n2\r\n>>> "),
    "none is not shown": ("None\r", b"None\r\n>>> "),
    "underscore": ("3\r_+1\r", b"3\r\n3\r\n>>> _+1\r\n4\r\n>>> "),
    "block": (
        "for i in range(2):\rprint(i)\r\x08\r",
        b"for i in range(2):\r\n...     print(i)\r\n...     \b\b\b\b\x1b[K\r\n0\r\n1\r\n>>> ",
    ),
    "brackets": ("[1,\r2]\r", b"[1,\r\n... 2]\r\n[1, 2]\r\n>>> "),
    "ctrl-c cancels a block": ("if 1:\rab\x03", b"if 1:\r\n...     ab\r\n>>> "),
    "ctrl-d in an indented line": ("if 1:\r2\r\x04", b"if 1:\r\n...     2\r\n...     "),
    "ctrl-b": ("\x02", b"\r\n" + HELLO + PROMPT),
    "paste": (
        "\x05def f():\r  return 3\rf()\r\x04",
        (
            b"\r\npaste mode; Ctrl-C to cancel, Ctrl-D to finish\r\n"
            b"=== def f():\r\n===   return 3\r\n=== f()\r\n=== \r\n3\r\n>>> "
        ),
    ),
    "paste cancelled": ("\x05abc\x03", b"\r\npaste mode; Ctrl-C to cancel, Ctrl-D to finish\r\n=== abc\r\n>>> "),
    "soft reset": ("\x04", b"\r\nMPY: soft reboot\r\n" + HELLO + PROMPT),
    "soft reset forgets": (
        "x=1\r\x04x\r",
        b"x=1\r\n>>> \r\nMPY: soft reboot\r\n"
        + HELLO
        + PROMPT
        + b"x\r\n"
        + TRACE
        + b"1, in <module>\r\nNameError: name 'x' isn't defined\r\n>>> ",
    ),
}


@pytest.mark.parametrize("name", FRIENDLY)
def test_friendly(bench: ReplBench, name: str) -> None:
    keys, expected = FRIENDLY[name]
    assert bench.typed(keys) == expected


PASTE, WINDOW = b"\x05A\x01", b"R\x01\x80\x00\x01"
INVALID = b"\x04\x04" + TRACE + b"1\r\nSyntaxError: invalid syntax\r\n\x04>"
RAW = {
    "output": (b"print(5)\x04", b"OK5\r\n\x04\x04>"),
    "expressions are not shown": (b"5\x04", b"OK\x04\x04>"),
    "error": (b"open('x')\x04", b"OK\x04" + TRACE + b"1, in <module>\r\nOSError: [Errno 2] ENOENT\r\n\x04>"),
    "output and error": (
        b"print(1)\n1/0\x04",
        b"OK1\r\n\x04" + TRACE + b"2, in <module>\r\nZeroDivisionError: divide by zero\r\n\x04>",
    ),
    "names live on": (b"x=7\x04print(x)\x04", b"OK\x04\x04>OK7\r\n\x04\x04>"),
    "ctrl-c clears": (b"garbage(\x03print(1)\x04", b"OK1\r\n\x04\x04>"),
    "ctrl-a starts again": (b"garbage(\x01", RAW_BANNER + b">"),
    "soft reset": (b"\x04", b"OK\r\nMPY: soft reboot\r\n" + RAW_BANNER + b">"),
    "exit": (b"raise SystemExit\x04", b"OK\x04\x04MPY: soft reboot\r\n" + RAW_BANNER + b">"),
    "ctrl-b": (b"\x02", b"\r\n" + HELLO + PROMPT),
    "cooked text": (b"print('a\\nb')\x04", b"OKa\r\nb\r\n\x04\x04>"),
    "raw bytes": (b"import sys\nsys.stdout.buffer.write(b'a\\nb\\x04')\x04", b"OKa\nb\x04\x04\x04>"),
    "not UTF-8": (b"x='\xff'\x04", b"OK\x04Traceback (most recent call last):\r\nUnicodeError: \r\n\x04>"),
    "an exception that cannot be shown": (
        b"class X:\n  def __str__(self): 1/0\nraise ValueError(X())\x04",
        b"OK\x04" + TRACE + b"3, in <module>\r\nValueError: \r\n\x04>",
    ),
    "raw paste": (PASTE + b"print(1)\x04", WINDOW + b"\x041\r\n\x04\x04>"),
    "raw paste opens its window each 128 bytes": (
        PASTE + b"x = 1\n" * 64 + b"\x04",
        WINDOW + b"\x01" * 3 + b"\x04\x04\x04>",
    ),
    "raw paste cancelled": (
        PASTE + b"print(1)\x03",
        WINDOW + b"\x04\x04Traceback (most recent call last):\r\nKeyboardInterrupt: \r\n\x04>",
    ),
    "raw paste ends early on hopeless code": (PASTE + b"x = = 1\n" + b"y = 2\n" * 100 + b"\x04", WINDOW + INVALID),
    "raw paste reports a late syntax error at the end": (PASTE + b"x = = 1\x04", WINDOW + INVALID),
}


@pytest.mark.parametrize("name", RAW)
def test_raw(bench: ReplBench, name: str) -> None:
    data, expected = RAW[name]
    assert bench.raw(data) == expected


TOO_LONG = b"Traceback (most recent call last):\r\nMemoryError: memory allocation failed, allocating "


def test_code_that_no_board_could_hold(bench: ReplBench) -> None:
    code = b"x = 1\n" * (MAX_CODE // 6 + 100)
    assert bench.raw(code + b"\x04print(1)\x04") == b"OK\x04" + TOO_LONG + b"262145 bytes\r\n\x04>OK1\r\n\x04\x04>"
    output = bench.raw(b"\x05A\x01" + code * 2 + b"\x04print(1)\x04").lstrip(b"R\x01\x80\x00")
    assert output.startswith(b"\x04\x04" + TOO_LONG)
    assert output.endswith(b"OK1\r\n\x04\x04>")


def test_nothing_a_callback_does_ends_the_prompt(bench: ReplBench) -> None:
    (bench.folder / "main.py").write_text(
        "import machine, micropython, sys, time\n"
        "def tick(timer):\n  micropython.kbd_intr(3)\n  sys.exit()\n"
        "machine.Timer(mode=0, period=1, callback=tick)\n"
        "start = time.ticks_ms()\n"
        "while time.ticks_diff(time.ticks_ms(), start) < 3: pass\n"
    )
    trace = b'Traceback (most recent call last):\r\n  File "main.py", line 4, in tick\r\nSystemExit: \r\n'
    assert bench.run(b"\x031+1\r") == HELLO + PROMPT + trace + b"\r\n>>> 1+1\r\n2\r\n>>> "


def test_raw_paste_not_supported(bench: ReplBench) -> None:
    output = bench.run(b"\x01\x05A\x01print(1)\x04", raw_paste=False)
    assert output.endswith(RAW_BANNER + b">R\x00>OK1\r\n\x04\x04>")
    assert bench.raw(b"\x05B\x01") == b"R\x00>"


@pytest.mark.parametrize("code", [b"x = = 1\ny = 2\nz = 3\n", b"def f(:\n  pass\nx\n", b"\xff\n\n\n"])
def test_hopeless_code(code: bytes) -> None:
    assert is_hopeless(code)


@pytest.mark.parametrize(
    "code",
    [b"", b"x = (1,\n2,\n", b"try:\n  x\n", b"if x:\n", b"'''a\nb\n", b"x = = 1", b"def f():\n  '''a\n", b"[\n1,\n\n"],
)
def test_code_that_may_yet_be_good(code: bytes) -> None:
    assert not is_hopeless(code)


def test_valid_code_is_never_hopeless_wherever_it_is_cut() -> None:
    code = Path(__file__).read_bytes()
    lines = code.splitlines(keepends=True)
    assert not [cut for cut in range(len(lines)) if is_hopeless(b"".join(lines[:cut]))]


def test_boot_and_main_run_in_the_friendly_mode(bench: ReplBench) -> None:
    (bench.folder / "boot.py").write_text("print('boot')\n")
    (bench.folder / "main.py").write_text("print('main', __name__, __file__)\nx = 5\n")
    assert bench.run(b"x\r") == b"boot\r\nmain __main__ main.py\r\n" + HELLO + PROMPT + b"x\r\n5\r\n>>> "


def test_main_does_not_run_after_a_raw_soft_reset(bench: ReplBench) -> None:
    (bench.folder / "boot.py").write_text("print('boot')\n")
    (bench.folder / "main.py").write_text("print('main')\n")
    output = bench.run(b"\x01\x04")
    assert output.endswith(b"OK\r\nMPY: soft reboot\r\nboot\r\n" + RAW_BANNER + b">")


def test_an_error_in_main_leads_to_the_prompt(bench: ReplBench) -> None:
    (bench.folder / "main.py").write_text("def f():\n  1/0\nf()\n")
    trace = b"Traceback (most recent call last):\r\n"
    trace += b'  File "main.py", line 3, in <module>\r\n  File "main.py", line 2, in f\r\n'
    assert bench.run(b"") == trace + b"ZeroDivisionError: divide by zero\r\n" + HELLO + PROMPT


def test_a_hard_reset_goes_to_the_friendly_mode(bench: ReplBench) -> None:
    (bench.folder / "main.py").write_text("print('main')\n")
    output = bench.run(b"\x01import machine\ntry:\n  machine.reset()\nexcept:\n  print('caught')\n\x04lost")
    assert output.count(b"main\r\n") == 2
    assert output.endswith(b"OKmain\r\n" + HELLO + PROMPT)


def test_the_bootloader_closes_the_line(bench: ReplBench) -> None:
    output = bench.run(b"\x01import machine\nmachine.bootloader()\nprint('caught')\n\x04lost")
    assert output.endswith(b"OK")
