"""The line editor of the friendly REPL: echo, backspace, auto-indent, and control characters on an empty line.

Pass characters to `feed`, which returns when a line is complete. Cursor keys, history and completion are not supported:
their characters are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CTRL_A, CTRL_B, CTRL_C, CTRL_D, CTRL_E = 1, 2, 3, 4, 5
INDENT = "    "
COMPOUND = ("if", "while", "for", "try", "with", "def", "class", "async")


class LineEditor:
    """Edits one statement of one or more lines. `text` is the input so far."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self.text = ""
        self._start = 0
        self._echo = echo
        self._escape = 0
        self._just_indented = False

    def prompt(self, text: str) -> None:
        """Begin a line: print the prompt, and the indentation that follows from the line before."""
        self._start = len(self.text)
        self._escape = 0
        self._just_indented = False
        self._echo(text)
        indent = _indent_after(self.text)
        if indent:
            self.text += indent
            self._echo(indent)
            self._just_indented = True

    def feed(self, char: int) -> int | None:
        """Process a character. Return 0 when the line is complete, a control character that ended it, or else None."""
        just_indented, self._just_indented = self._just_indented, False
        if self._escape:
            self._skip(char)
        elif CTRL_A <= char <= CTRL_E and len(self.text) == self._start or char == CTRL_C:
            return char
        elif char == 13:
            self._echo("\r\n")
            return 0
        elif char == 27:
            self._escape = 1
        elif char in (8, 127):
            self._backspace()
        elif just_indented and char == 32:
            # A space typed right after the indentation replaces one level of it.
            self._erase(3)
        elif just_indented and char == 9:
            pass
        elif char == 9 and self.text[-1:].isspace():
            self._insert(INDENT)
        elif 32 <= char <= 126:
            self._insert(chr(char))
        return None

    def _insert(self, text: str) -> None:
        self.text += text
        self._echo(text)

    def _backspace(self) -> None:
        line = self.text[self._start :]
        if line:
            self._erase(len(INDENT) if len(line) >= len(INDENT) and not line.strip(" ") else 1)

    def _erase(self, count: int) -> None:
        self.text = self.text[:-count]
        self._echo(("\b" * count) + "\x1b[K")

    def _skip(self, char: int) -> None:
        """Skip an escape sequence. `_escape` is 1 after ESC, and 2 after ESC [ or ESC O and within the number."""
        if self._escape == 1:
            self._escape = 2 if char in b"[O" else 0
        else:
            self._escape = 2 if char in b"0123456789;" else 0


def _indent_after(text: str) -> str:
    if len(text) < 2 or not text.endswith("\n"):
        return ""
    lines = text[:-1].split("\n")
    if len(lines) > 2 and not lines[-1].strip(" ") and not lines[-2].strip(" "):
        return ""
    depth = (len(lines[-1]) - len(lines[-1].lstrip(" "))) // len(INDENT)
    return INDENT * (depth + lines[-1].endswith(":"))


def continues(text: str) -> bool:
    """Whether the REPL must read another line to complete `text`."""
    quote = ""
    depth = [0, 0, 0]
    place = 0
    while place < len(text):
        char = text[place]
        if char == "\\" and quote:
            place += 1
        elif char in "'\"":
            triple = text[place : place + 3] == char * 3
            if not quote:
                quote = char * 3 if triple else char
                place += len(quote) - 1
            elif quote == char or triple and quote == char * 3:
                place += len(quote) - 1
                quote = ""
        elif not quote and char in "([{":
            depth["([{".index(char)] += 1
        elif not quote and char in ")]}":
            depth[")]}".index(char)] -= 1
        place += 1
    if len(quote) == 3 or not quote and max(depth) > 0 or text.endswith("\\"):
        return True
    word = text[: len(text) - len(text.lstrip("abcdefghijklmnopqrstuvwxyz"))]
    return (text.startswith("@") or word in COMPOUND) and not text.endswith("\n")
