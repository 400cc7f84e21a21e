"""Modules and builtins, as board code sees them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.simulator.mounts import MountingFiles
from fastflight.simulator.runtime import Runtime
from fastflight.simulator.uart import Uart


class RuntimeBench:
    """A runtime, and what it printed."""

    def __init__(self, folder: Path, without: str = "") -> None:
        self.folder = folder
        self.output = bytearray()
        self.uart = Uart(self.output.extend)
        files = MountingFiles(str(folder), capacity=1 << 20, heap=lambda: 100_000)
        missing = frozenset(without.split(",")) if without else frozenset()
        self.runtime = Runtime(self.uart, files, without=missing, constants={"TELEMETRY_HZ": 4})

    def run(self, code: str) -> str:
        """What the code printed, with LF line ends; its last line is the error if there was one."""
        self.output.clear()
        self.runtime.finish(self.runtime.execute(code))
        return self.output.decode().replace("\r\n", "\n").strip()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[RuntimeBench]:
    hook = sys.displayhook
    yield RuntimeBench(tmp_path)
    sys.displayhook = hook


PROGRAMS = {
    "platform": (
        "import sys\nprint(sys.platform, sys.implementation[0], sys.implementation.version)",
        "simulator micropython (1, 27, 0, '')",
    ),
    "u-names": ("import uos, ujson, ubinascii, uhashlib, ustruct, utime\nprint(uos.getcwd())", "/"),
    "base64": (
        (
            "import binascii\n"
            "print(binascii.b2a_base64(b'ab', newline=False), binascii.a2b_base64(b'YWI='), binascii.crc32(b'a'))"
        ),
        "b'YWI=' b'ab' 3904355907",
    ),
    "deflate raw": (
        (
            "import deflate, io\nb = io.BytesIO()\nd = deflate.DeflateIO(b, deflate.RAW, 10)\n"
            "d.write(b'abc' * 1000)\nd.close()\n"
            "n = b.tell()\nb.seek(0)\nr = deflate.DeflateIO(b, deflate.RAW, 10)\n"
            "print(n < 100, r.read(5), len(r.read()))"
        ),
        "True b'abcab' 2995",
    ),
    "deflate zlib is recognised": (
        (
            "import deflate, io\nb = io.BytesIO()\n"
            "with deflate.DeflateIO(b, deflate.ZLIB) as d: d.write(b'x' * 2000)\nb.seek(0)\n"
            "print(deflate.DeflateIO(b).read() == b'x' * 2000)"
        ),
        "True",
    ),
    "os.ilistdir": (
        "import os\nopen('a', 'w').close()\nos.mkdir('b')\nprint(list(os.ilistdir('/')))",
        "[('a', 32768, 0, 0), ('b', 16384, 0, 0)]",
    ),
    "os.statvfs": ("import os\ns = os.statvfs('/')\nprint(s[0], s[2], s[9])", "4096 256 255"),
    "ticks": ("import time\nprint(time.ticks_diff(time.ticks_add(2**30 - 1, 3), 2**30 - 1))", "3"),
    "calendar": (
        "import time\nt = time.gmtime(951782400)\nprint(t, time.mktime(t), time.mktime((1970, 1, 1, 0, 0, 0, 0, 0)))",
        "(2000, 2, 29, 0, 0, 0, 1, 60) 951782400 0",
    ),
    "memory": (
        "import gc\ngc.collect()\na = gc.mem_free()\nx = bytearray(5000)\nprint(a, 4900 < a - gc.mem_free() < 5100)",
        "120000 True",
    ),
    "native": ("import micropython\n@micropython.native\ndef f(): return 1\nprint(f())", "1"),
    "oserror": (
        "print(OSError(2), repr(OSError(2)), OSError(28).errno, OSError('x'), OSError(99), OSError(5, 'y'))",
        "[Errno 2] ENOENT OSError(2,) 28 x 99 [Errno 5] EIO: y",
    ),
    "mounts": ("import os, vfs\nprint([m[1] for m in os.mount()], [m[1] for m in vfs.mount()])", "['/'] ['/']"),
    "constants": ("import simulator\nprint(simulator.TELEMETRY_HZ)", "4"),
    "exec in a namespace": ("d = {}\nexec('x = 1', d)\nprint(d['x'], eval('x + 1', d))", "1 2"),
    "help": (
        "help()",
        "Simulated board: code runs on the host, in a namespace like MicroPython's.\nSee sys, os, machine, time.",
    ),
    "write to stdout": (
        "import sys\nn = sys.stdout.write('aé\\n')\nm = sys.stdout.buffer.write(b'b\\n')\nprint(n, m)",
        "aé\nb\n3 2",
    ),
    "return outside": ("return 5", "SyntaxError: 'return' outside function"),
    "raised without a message": ("raise SyntaxError", "SyntaxError:"),
    "unexpected indent": ("x = 1\n y = 2", "IndentationError: unexpected indent"),
    "unicode error": ("b'\\xff'.decode()", "UnicodeError:"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(desk: RuntimeBench, name: str) -> None:
    code, expected = PROGRAMS[name]
    output = desk.run(code)
    assert output == expected or output.splitlines()[-1] == expected


def test_modules_are_imported_from_the_boards_files(desk: RuntimeBench) -> None:
    (desk.folder / "lib").mkdir()
    (desk.folder / "lib" / "helper.py").write_text("import sys\nvalue = 7\n")
    package = desk.folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import name\n")
    (package / "inner.py").write_text("name = __name__\n")
    (desk.folder / "broken.py").write_text("def f():\n  raise OSError(5)\nf()\n")
    assert desk.run(
        "import helper, package.inner as i\nfrom package import name\nprint(helper.value, i.name, name)"
    ) == ("7 package.inner package.inner")
    assert desk.run("from helper import *\nprint(value)") == "7"
    assert desk.run("import nothing").endswith("ImportError: no module named 'nothing'")
    assert desk.run("import broken").splitlines()[1:] == [
        '  File "<stdin>", line 1, in <module>',
        '  File "broken.py", line 3, in <module>',
        '  File "broken.py", line 2, in f',
        "OSError: [Errno 5] EIO",
    ]
    assert desk.run("import sys\nprint('broken' in sys.modules, 'helper' in sys.modules)") == "False True"


@pytest.mark.parametrize(
    ("without", "code", "error"),
    [
        ("hashlib", "import hashlib", "ImportError: no module named 'hashlib'"),
        ("hashlib", "import uhashlib", "ImportError: no module named 'uhashlib'"),
        ("binascii,deflate", "import deflate", "ImportError: no module named 'deflate'"),
        ("os.ilistdir", "import os\nos.ilistdir", "AttributeError"),
        ("os.stat", "from uos import stat", "ImportError"),
        ("sys.stdin", "import sys\nsys.stdin", "AttributeError"),
        ("hashlib.sha256", "from hashlib import sha256", "ImportError"),
    ],
)
def test_a_poorer_board(tmp_path: Path, without: str, code: str, error: str) -> None:
    assert RuntimeBench(tmp_path, without).run(code).splitlines()[-1].startswith(error)
    assert RuntimeBench(tmp_path).run(code) == ""


def test_reading_stdin(desk: RuntimeBench) -> None:
    desk.uart.arrive("ab\rcü\r\n\x00\xff".encode("latin-1").replace(b"\xfc", "ü".encode()))
    code = "import sys\nprint(repr(sys.stdin.read(1)), repr(sys.stdin.readline()), repr(sys.stdin.read(2)))"
    assert desk.run(code) == "'a' 'b\\n' 'c\\xfc'"
    assert desk.run("print(sys.stdin.buffer.readline(), sys.stdin.buffer.read(2))") == "b'\\r\\n' b'\\x00\\xff'"
    desk.uart.arrive(b"12345")
    assert desk.run("b = bytearray(4)\nprint(sys.stdin.buffer.readinto(b), b)") == "4 bytearray(b'1234')"
    assert desk.run("print(sys.stdin.buffer.readinto(b, 1), b)") == "1 bytearray(b'5234')"
    assert desk.run("sys.stdin.buffer.read(200000)").endswith(
        "MemoryError: memory allocation failed, allocating 200000 bytes"
    )


def test_polling_stdin(desk: RuntimeBench) -> None:
    code = "import select, sys\np = select.poll()\n"
    code += "p.register(sys.stdin, select.POLLIN)\nprint(p.poll(0), list(p.ipoll(1)))"
    assert desk.run(code) == "[] []"
    desk.uart.arrive(b"x")
    assert desk.run("print([event for _, event in p.poll()], next(p.ipoll(1000))[0] is sys.stdin)") == "[1] True"


def test_ctrl_c_is_data_after_kbd_intr(desk: RuntimeBench) -> None:
    assert desk.run("import micropython, sys\nmicropython.kbd_intr(-1)") == ""
    code = "micropython.kbd_intr(-1)\nprint(sys.stdin.buffer.read(1))"
    desk.uart.arrive(b"\x03")
    assert desk.run(code) == "b'\\x03'"


def test_timers_run_while_sleeping(desk: RuntimeBench) -> None:
    code = """
import machine, time
seen = []
t = machine.Timer(-1)
t.init(mode=machine.Timer.PERIODIC, period=1, callback=lambda t: seen.append(1))
while len(seen) < 3:
    time.sleep_ms(1)
t.deinit()
print(len(seen) >= 3)
"""
    assert desk.run(code) == "True"


def test_the_clock_runs_from_the_time_to_which_it_was_set(desk: RuntimeBench) -> None:
    code = """
import machine
clock = machine.RTC()
print(len(clock.datetime()))
clock.datetime((2030, 12, 31, 1, 10, 20, 30, 0))
print(machine.RTC().datetime()[:6])
"""
    assert desk.run(code).splitlines() == ["8", "(2030, 12, 31, 1, 10, 20)"]
