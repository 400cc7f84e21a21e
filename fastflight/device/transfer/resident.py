"""Installs routines on a board when they are first needed, and calls them.

The routines (`routines`) are attributes of an object in `sys.modules` on the board. Its name contains a hash of their
source, so another version of this program finds none of its own, and installs its own routines. A soft reset removes
them. The next call then raises `ImportError` on the board, or `AttributeError` if only that routine is missing. In both
cases the routines are installed again, once.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Sequence

from fastflight import own_code
from fastflight.device.answers import routine_failure
from fastflight.device.capabilities import Capabilities
from fastflight.device.execute import can_seal
from fastflight.device.transfer import routines
from fastflight.errors import ProtocolError
from fastflight.protocol import Conversation, RawRepl

# Enough to compile two kilobytes of source on a slow chip after a garbage collection.
START_SECONDS = 5.0

# A routine prints a dot at least this often: it hashes 32 blocks of a slow flash in less time.
HASH_SECONDS = 15.0

READY = b"R"
END = b"\x04"

INSTALL = """\
import sys
class {name}:
 pass
sys.modules['{name}']={name}
"""
# Calls a routine if the call has arrived unchanged. `RUN_CALL` loads this into `__main__` under the one name that is
# ever used there (`own_code`), and it is gone before the routine runs.
RUN = """\
def _ff(s,c):
 import __main__,binascii,{name}
 del __main__._ff
 if binascii.crc32(s)!=c:
  raise SyntaxError
 eval(s,{{'_ff':{name}}})
"""
RUN_CALL = "import {name} as _ff\n_ff.run({call!r},{crc32})"
ADD = "{code}{name}.{routine}=_ff\n"

# Routines that call others, with all that must be installed for them.
NEEDS = {"put": ("sum", "put"), "show": ("sum", "show"), "tree": ("sum", "tree")}

_VERSION = hashlib.sha256(
    "".join(
        (routines.PUT, routines.SUM, repr(routines.SHA256), repr(routines.CRC32), routines.GET)
        + (routines.SHOW, routines.TREE, routines.TAKE_IN_TIME, routines.ROOM, RUN)
    ).encode()
).hexdigest()[:4]
NAME = f"_ff{_VERSION}"
_MISSING = re.compile(rb"ImportError: [^\r\n]*%b|AttributeError: [^\r\n]*" % NAME.encode())


class Resident:
    """The routines on one board."""

    def __init__(self, repl: RawRepl, capabilities: Capabilities) -> None:
        self._repl = repl
        self._capabilities = capabilities
        self._installed: set[str] = set()

    def has(self, routine: str) -> bool:
        """Return whether `routine` is installed, as far as the host knows."""
        return routine in self._installed

    def call(self, routine: str, *arguments: object, where: str) -> Conversation[None]:
        """Start `routine` and wait until it has printed its `R`. Raise the error if it fails before that.

        Then read what the routine sends after the `R`, if anything, and call `finish`.
        """
        stderr = yield from self._start(routine, arguments, where)
        if _MISSING.search(stderr) and self._installed:
            self._installed.clear()
            stderr = yield from self._start(routine, arguments, where)
        if stderr:
            raise routine_failure(stderr, where=where, platform=self._capabilities.platform)

    def finish(self, where: str) -> Conversation[bytes]:
        """Read the rest of the running routine's output and return it. Raise the error if the routine failed."""
        stdout = yield from self._repl.inbox.until(END, HASH_SECONDS)
        stderr = yield from self._repl.inbox.until(END + b">", HASH_SECONDS)
        if stderr:
            raise routine_failure(stderr, where=where, platform=self._capabilities.platform)
        return stdout

    def alive(self) -> Conversation[bool]:
        """Return whether the routines are still on the board. If not, the board was reset.

        `ProtocolError` if the question or its answer was damaged on the line.
        """
        code = f"import {NAME}".encode()
        output = yield from self._repl.execute(code, START_SECONDS, sealed=can_seal(self._repl, self._capabilities))
        if not output.stderr:
            return True
        if not _MISSING.search(output.stderr):
            raise routine_failure(output.stderr, where="", platform=self._capabilities.platform)
        self._installed.clear()
        return False

    def forget(self) -> None:
        """Note that the board was reset or the routines may be damaged: the next call installs them again."""
        self._installed.clear()

    def _start(self, routine: str, arguments: tuple[object, ...], where: str) -> Conversation[bytes]:
        missing = [each for each in NEEDS.get(routine, (routine,)) if each not in self._installed]
        fresh = not self._installed
        if can_seal(self._repl, self._capabilities):
            code = sealed_call(self._capabilities, missing, routine, arguments, fresh=fresh)
            yield from self._repl.submit_in_program(code)
        else:
            code = install_code(self._capabilities, missing, fresh=fresh).encode()
            yield from self._repl.submit(code + f"import {NAME}\n{_call(NAME, routine, arguments)}".encode())
        first = yield from self._repl.inbox.exactly(1, START_SECONDS)
        if first == READY:
            self._installed.update(missing)
            return b""
        if first != END:
            self._repl.inbox.put_back(first)
            raise ProtocolError("the board did not start what it was asked to run", where=where)
        stderr = yield from self._repl.inbox.until(END + b">", START_SECONDS)
        # Any other error comes from the routine itself, so it is installed.
        if not _MISSING.search(stderr) and b"MemoryError" not in stderr and b"SyntaxError" not in stderr:
            self._installed.update(missing)
        return stderr or b"ended too early"


def sealed_call(
    capabilities: Capabilities, missing: Sequence[str], routine: str, arguments: tuple[object, ...], *, fresh: bool
) -> bytes:
    """Return code that installs the `missing` routines and calls `routine`, if it arrives unchanged.

    `fresh`: nothing is installed yet. The code is complete: it is run in `__main__`, and leaves nothing there.
    """
    code = install_code(capabilities, missing, fresh=fresh)
    code += ADD.format(code=RUN.format(name=NAME), name=NAME, routine="run") if fresh else ""
    call = _call("_ff", routine, arguments).encode()
    run = RUN_CALL.format(name=NAME, call=call, crc32=binascii.crc32(call)).encode()
    return (own_code.wrap(code.encode(), sealed=True) if code else b"") + run


def install_code(capabilities: Capabilities, missing: Sequence[str], *, fresh: bool) -> str:
    """Return the code that installs the `missing` routines. `fresh`: nothing is installed yet."""
    # Only `fresh` code creates the object: a new one would hide that a reset has removed the other routines.
    code = INSTALL.format(name=NAME) if fresh else f"import {NAME}\n" if missing else ""
    for each in missing:
        code += ADD.format(code=source(each, capabilities), name=NAME, routine=each)
    return code


def _call(name: str, routine: str, arguments: tuple[object, ...]) -> str:
    return f"{name}.{routine}({','.join(map(repr, arguments))})"


def source(routine: str, capabilities: Capabilities) -> str:
    """Return the source of a routine for a board with these capabilities."""
    match routine:
        case "put":
            timed = capabilities.has("stdin.poll")
            take = routines.TAKE_IN_TIME if timed else routines.TAKE
            room = routines.ROOM if capabilities.has("os.statvfs") else ""
            return routines.PUT.format(name=NAME, take=take, room=room)
        case "sum":
            hashing = routines.SHA256 if capabilities.digest == "sha256" else routines.CRC32
            return routines.SUM.format(**hashing)
        case "show":
            return routines.SHOW.format(name=NAME)
        case "tree":
            digest = f"{NAME}.sum(n,-1,z)" if capabilities.digest else "b''"
            if capabilities.digest and capabilities.has("binascii.a2b_base64"):
                digest = f"str(binascii.b2a_base64({digest}),'ascii')"
            return routines.TREE.format(name=NAME, depth=64, digest=digest)
        case _:
            return routines.GET
