"""Formats exceptions as MicroPython does: only the board's frames, with the board's names of types and files."""

from __future__ import annotations

from types import TracebackType

# Board code is compiled with this file name prefix, which distinguishes its frames from the simulator's.
PREFIX = "board:"
# Exceptions that MicroPython does not have, with the nearest class that it has.
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
# The syntax errors with a message of their own in MicroPython, by the start of CPython's message. All others are
# "invalid syntax".
SYNTAX_ERRORS = {
    "unexpected indent": "unexpected indent",
    "unindent does not match": "unindent doesn't match any outer indent level",
    "'return' outside": "'return' outside function",
    "'break' outside": "'break'/'continue' outside loop",
    "'continue' not": "'break'/'continue' outside loop",
}


def format_exception(error: BaseException) -> str:
    """Return the traceback that a board prints, with LF line ends."""
    lines = ["Traceback (most recent call last):"]
    lines += _frames(error.__traceback__)
    name = NAMES.get(type(error).__name__, type(error).__name__)
    # A SyntaxError of the compiler has a message; one that board code raises may have none.
    if isinstance(error, SyntaxError) and isinstance(error.msg, str):
        where = (error.filename or "<stdin>").removeprefix(PREFIX)
        text = next((text for start, text in SYNTAX_ERRORS.items() if error.msg.startswith(start)), "")
        name = name if text and name == "IndentationError" else "SyntaxError"
        lines.append(f'  File "{where}", line {error.lineno or 1}')
        lines.append(f"{name}: {text or 'invalid syntax'}")
    else:
        try:
            text = _text(error)
        except Exception:
            # The `__str__` of a class from board code may raise; the board must go on.
            text = ""
        lines.append(f"{name}: {text}")
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
    if isinstance(error, (UnicodeDecodeError, UnicodeEncodeError)):
        return ""
    if isinstance(error, ZeroDivisionError):
        return "divide by zero"
    if len(error.args) <= 1:
        return str(error.args[0]) if error.args else ""
    return repr(error.args)
