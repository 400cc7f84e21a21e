"""The line editor, character by character, and what asks for another line."""

from __future__ import annotations

import pytest

from fastflight.simulator.readline import LineEditor, continues


def typed(keys: str, text: str = "") -> tuple[str, str, int | None]:
    """Type `keys` on a fresh line after `text`: what is in the line, what was echoed, how it ended."""
    echoed: list[str] = []
    editor = LineEditor(echoed.append)
    editor.text = text
    editor.prompt(">>> ")
    end = None
    for key in keys:
        end = editor.feed(ord(key))
    return editor.text, "".join(echoed), end


@pytest.mark.parametrize(
    ("keys", "line", "echo", "end"),
    [
        ("1+1\r", "1+1", ">>> 1+1\r\n", 0),
        ("ab\x08c\r", "ac", ">>> ab\b\x1b[Kc\r\n", 0),
        ("\x7fx\r", "x", ">>> x\r\n", 0),
        ("a\x01\x02\x04\x05b\r", "ab", ">>> ab\r\n", 0),
        ("a\n\x00\xffb", "ab", ">>> ab", None),
        ("\x1b[A\x1b[1;5Da", "a", ">>> a", None),
        ("a\x03", "a", ">>> a", 3),
        ("\x01", "", ">>> ", 1),
        ("\x04", "", ">>> ", 4),
        ("a \tb", "a     b", ">>> a     b", None),
    ],
)
def test_a_line(keys: str, line: str, echo: str, end: int | None) -> None:
    assert typed(keys) == (line, echo, end)


@pytest.mark.parametrize(
    ("text", "keys", "line", "echo"),
    [
        ("if x:\n", "", "    ", ">>>     "),
        ("if x:\n    y\n", "z", "    z", ">>>     z"),
        ("if x:\n    if y:\n", "", "        ", ">>>         "),
        ("if x:\n    y\n    \n", "", "    ", ">>>     "),
        ("if x:\n    y\n    \n    \n", "", "", ">>> "),
        ("if x:\n", "\x08", "", ">>>     \b\b\b\b\x1b[K"),
        ("if x:\n", " y", " y", ">>>     \b\b\b\x1b[Ky"),
        ("if x:\n", "\ty", "    y", ">>>     y"),
    ],
)
def test_auto_indent(text: str, keys: str, line: str, echo: str) -> None:
    entered, echoed, _ = typed(keys, text)
    assert (entered, echoed) == (text + line, echo)


@pytest.mark.parametrize(
    "text", ["if x:", "def f():\n    pass", "@decorator", "f(1,", "[", '"""a', "'''a\n'b'", "a\\", "async def f():"]
)
def test_unfinished(text: str) -> None:
    assert continues(text)


@pytest.mark.parametrize(
    "text", ["1", "iffy", "def f():\n    pass\n", "f(1)", "'('", '"""a"""', "'it", "f(')')", "]", "'\\''", "x = {}"]
)
def test_finished(text: str) -> None:
    assert not continues(text)
