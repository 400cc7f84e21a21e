"""Exceptions in MicroPython's form: only the board's frames, and the board's names for types and files."""

from __future__ import annotations

from types import TracebackType

# Board code is compiled under this prefix, which tells its frames from the simulator's own.
PREFIX = "board:"
# Subclasses that MicroPython does not have, by the name of the nearest class that it has.
NAMES = {
    "ModuleNotFoundError": "ImportError",
    "UnicodeDecodeError": "UnicodeError",
    "UnicodeEncodeError": "UnicodeError",
    "UnboundLocalError": "NameError",
    "RecursionError": "RuntimeError",
    "TabError": "IndentationError",
    "FileNotFoundError": "OSError",
    "PermissionError": "OSError",
    "JSONDecodeError": "ValueError",
}


def format_exception(error: BaseException) -> str:
    """The traceback text that a board prints, with LF line ends."""
    lines = ["Traceback (most recent call last):"]
    lines += _frames(error.__traceback__)
    name = NAMES.get(type(error).__name__, type(error).__name__)
    if isinstance(error, SyntaxError):
        if (error.filename or "").startswith(PREFIX) or error.lineno:
            where = (error.filename or f"{PREFIX}<stdin>").removeprefix(PREFIX)
            lines.append(f'  File "{where}", line {error.lineno or 1}')
        lines.append(f"{name}: invalid syntax" if name == "SyntaxError" else f"{name}: {error.msg}")
    else:
        lines.append(f"{name}: {_text(error)}")
    return "\n".join(lines) + "\n"


def _frames(trace: TracebackType | None) -> list[str]:
    lines = []
    while trace:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(PREFIX):
            lines.append(f'  File "{code.co_filename.removeprefix(PREFIX)}", line {trace.tb_lineno}, in {code.co_name}')
        trace = trace.tb_next
    return lines


def _text(error: BaseException) -> str:
    if isinstance(error, OSError):
        return str(error)
    if isinstance(error, NameError):
        return str(error).replace("is not defined", "isn't defined")
    if len(error.args) <= 1:
        return str(error.args[0]) if error.args else ""
    return repr(error.args)
