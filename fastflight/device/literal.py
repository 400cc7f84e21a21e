"""What a board printed with `repr`, as a value. `ValueError` for what it cannot mean."""

from __future__ import annotations

import ast
from typing import Any

# A block in its text form has 8,256 characters, a long path with its details some hundred. Python's parser takes 450
# bytes for each item of a tuple: a megabyte of them would hold a loop up for seconds.
MAX_LITERAL_CHARACTERS = 16 * 1024
# Sizes, counts and times of any board; what Arrow's columns for them hold.
WHOLE = range(-(2**63), 2**63)


def value(text: str) -> Any:
    """The literal that `text` is. `ValueError` for anything else, which a board may print as it likes."""
    if len(text) > MAX_LITERAL_CHARACTERS:
        raise ValueError("a literal that is too long")
    try:
        return ast.literal_eval(text)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError("not a literal") from error


def whole(value: Any) -> int:
    """`value`, which must be a whole number of 64 bits."""
    if not isinstance(value, int) or value not in WHOLE:
        raise ValueError("not a whole number")
    return value


def text(value: Any) -> str:
    """`value`, which must be text that can be written as UTF-8: a literal may hold half a character."""
    if not isinstance(value, str):
        raise ValueError("not text")
    value.encode()
    return value
