"""The three ways in which a board receives code: friendly REPL, raw REPL, raw paste.

This follows MicroPython's `shared/runtime/pyexec.c` and `docs/reference/repl.rst` byte for byte, with two
simplifications: the friendly REPL has no cursor keys, history or completion, and raw paste detects a syntax error at
window boundaries, not at each token.

As on a real board, a Ctrl-C that arrives between `OK` and the start of the code is an ordinary character and interrupts
nothing. A host that must interrupt the code sends another one.

`Repl.friendly` and `Repl.raw` run until the board leaves that mode, and return what comes next (`Mode`).
"""

from __future__ import annotations

import ast
import re
import time
from enum import Enum
from typing import TYPE_CHECKING

from fastflight.simulator.readline import CTRL_A, CTRL_B, CTRL_C, CTRL_D, CTRL_E, LineEditor, continues
from fastflight.simulator.runtime import BANNER, Outcome

if TYPE_CHECKING:
    from fastflight.simulator.runtime import Runtime

RAW_BANNER = b"raw REPL; CTRL-B to exit\r\n"
# The window that raw paste announces: half of the stdin buffer, which is 256 bytes by default.
WINDOW = 128
# The longest source text, more than a board's heap holds. Longer code raises MemoryError; a longer line is cut off.
MAX_CODE = 256 * 1024
# The most bytes of code that are read at a time.
PIECE = 64 * 1024
RAW_CONTROL = re.compile(rb"[\x01-\x04]")
PASTE_END = re.compile(rb"[\x03\x04]")
ENTER = 13
ANY = re.compile(rb"(?s).")


class Mode(Enum):
    """The REPL that the board is in, or what it does next."""

    FRIENDLY = "friendly"
    RAW = "raw"
    SOFT_RESET = "soft reset"


class Repl:
    """The REPLs of one `Runtime`."""

    def __init__(self, runtime: Runtime, *, raw_paste: bool = True) -> None:
        self._runtime = runtime
        self._uart = runtime.uart
        self._window = min(WINDOW, runtime.uart.capacity // 2)
        self._raw_paste = raw_paste

    def friendly(self) -> Mode:
        """Print the banner and run the friendly REPL. Return when the mode changes, or for a soft reset."""
        self._banner()
        while True:
            editor = LineEditor(self._echo)
            editor.prompt(">>> ")
            end = self._line(editor)
            if end == CTRL_A:
                self._echo("\r\n")
                return Mode.RAW
            if end == CTRL_D:
                self._echo("\r\n")
                return Mode.SOFT_RESET
            if end == CTRL_E:
                outcome = self._paste()
            elif end:
                self._echo("\r\n")
                if end == CTRL_B:
                    self._banner()
                continue
            elif not editor.text:
                continue
            else:
                outcome = self._statement(editor)
            if outcome is Outcome.SOFT_RESET:
                return Mode.SOFT_RESET

    def raw(self) -> Mode:
        """Print the banner and run the raw REPL. Return when the mode changes, or for a soft reset."""
        self._uart.write(RAW_BANNER)
        while True:
            self._uart.write(b">")
            code, end = self._raw_code()
            if end == CTRL_B:
                self._echo("\r\n")
                return Mode.FRIENDLY
            if end == CTRL_A:
                if len(code) != 2 or code[0] != CTRL_E:
                    self._uart.write(RAW_BANNER)
                elif self._raw_paste_command(code[1:]) is Outcome.SOFT_RESET:
                    return Mode.SOFT_RESET
                continue
            self._echo("OK")
            if not code:
                self._echo("\r\n")
                return Mode.SOFT_RESET
            if self._answer(code) is Outcome.SOFT_RESET:
                return Mode.SOFT_RESET

    def _raw_code(self) -> tuple[bytes, int]:
        """Read code up to the control character that ends it. Return both."""
        code = bytearray()
        while True:
            piece = self._uart.read_until(RAW_CONTROL, PIECE)
            end = piece[-1] if CTRL_A <= piece[-1] <= CTRL_D else 0
            # Store one byte more than allowed, so that `_execute` sees that the code is too long.
            code += piece[: len(piece) - bool(end)][: MAX_CODE + 1 - len(code)]
            if end == CTRL_C:
                code.clear()
            elif end:
                return bytes(code), end

    def _banner(self) -> None:
        self._echo(BANNER + 'Type "help()" for more information.\r\n')

    def _echo(self, text: str) -> None:
        self._uart.write(text.encode())

    def _line(self, editor: LineEditor) -> int:
        while True:
            char = self._character()
            if len(editor.text) > MAX_CODE and char >= 32:
                continue
            end = editor.feed(char)
            if end is not None:
                return end

    def _character(self) -> int:
        self._runtime.idle_until_input()
        char = self._uart.read_until(ANY, 1)[0]
        if char == ENTER or char >= 32:  # others come from programs that take the board, as Ctrl-A does
            self._runtime.typed_at = time.monotonic()
        return char

    def _statement(self, editor: LineEditor) -> Outcome:
        while continues(editor.text):
            editor.text += "\n"
            editor.prompt("... ")
            end = self._line(editor)
            if end == CTRL_C:
                self._echo("\r\n")
                return Outcome.DONE
            if end == CTRL_D:
                break
        return self._run(editor.text + "\n", "single")

    def _paste(self) -> Outcome:
        self._echo("\r\npaste mode; Ctrl-C to cancel, Ctrl-D to finish\r\n=== ")
        text = bytearray()
        while True:
            char = self._character()
            if char in (CTRL_C, CTRL_D):
                self._echo("\r\n")
                return self._run(bytes(text), "paste") if char == CTRL_D else Outcome.DONE
            if len(text) <= MAX_CODE:
                text.append(char)
            self._uart.write(b"\r\n=== " if char == 13 else bytes([char]))

    def _run(self, source: str | bytes, mode: str) -> Outcome:
        return self._runtime.finish(self._execute(source, mode))

    def _execute(self, source: str | bytes, mode: str) -> BaseException | None:
        if len(source) > MAX_CODE:
            return MemoryError(f"memory allocation failed, allocating {len(source)} bytes")
        return self._runtime.execute(source, mode=mode)

    def _answer(self, code: bytes) -> Outcome:
        """Run code and answer as the raw REPL does: output, EOT, error, EOT."""
        error = self._execute(code, "exec")
        self._uart.write(b"\x04")
        outcome = self._runtime.finish(error)
        self._uart.write(b"\x04")
        return outcome

    def _raw_paste_command(self, command: bytes) -> Outcome:
        if command != b"A" or not self._raw_paste:
            self._uart.write(b"R\x00")
            return Outcome.DONE
        self._uart.write(b"R\x01" + self._window.to_bytes(2, "little") + b"\x01")
        code = bytearray()
        left = check_at = self._window
        while True:
            piece = self._uart.read_until(PASTE_END, left)
            if piece[-1] in (CTRL_C, CTRL_D):
                code += piece[:-1]
                self._uart.write(b"\x04")
                break
            code += piece
            left -= len(piece)
            if left:
                continue
            if len(code) >= check_at:
                check_at = 2 * len(code)
                if is_hopeless(code) or len(code) > MAX_CODE:
                    self._end_early()
                    break
            self._uart.write(b"\x01")
            left = self._window
        if piece[-1] == CTRL_C:
            self._uart.write(b"\x04")
            self._runtime.report(KeyboardInterrupt())
            self._uart.write(b"\x04")
            return Outcome.RAISED
        return self._answer(bytes(code))

    def _end_early(self) -> None:
        """Tell the host to stop sending, then discard what is still on its way."""
        self._uart.write(b"\x04")
        while self._uart.read_until(PASTE_END, PIECE)[-1] not in (CTRL_C, CTRL_D):
            pass


def is_hopeless(code: bytes | bytearray) -> bool:
    """Whether no continuation can make `code` valid: it has a syntax error before the last complete line."""
    whole = code[: code.rfind(b"\n") + 1]
    try:
        text = whole.decode("utf-8")
        compile(text, "<stdin>", "exec", ast.PyCF_ONLY_AST | ALLOW_INCOMPLETE)
    except SyntaxError as error:
        return "incomplete input" not in str(error) and (error.lineno or 0) < text.count("\n")
    except ValueError:
        return True
    return False


# A flag without a public name. `codeop` uses it to distinguish incomplete code from invalid code.
ALLOW_INCOMPLETE = 0x4000
