"""What a board printed with `repr`, as a value."""

from __future__ import annotations

import ast
from typing import Any


def value(text: str) -> Any:
    """The literal that `text` is. `ValueError` for anything else, which a board may print as it likes."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError("not a literal") from error
