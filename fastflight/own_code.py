"""Wraps fastflight's own code so that a board runs it beside the variables of the user's program, not among them.

A raw REPL runs code in the module `__main__`, where the user's program keeps its variables. A program may also have
used the name of a builtin for a variable (`len = 5`) or replaced a builtin (`builtins.print = log`). Our code must not
change the former, and must not be broken by either. So it runs with the board's real builtins as its global names, and
with a new dictionary for what it assigns. As in a class body, functions in such code do not see its variables: they
import what they need, or take it as a default argument.

Only one name at a time is put into `__main__`, `_ff` or `_ffv`, and it is gone before our code begins to run. If a line
breaks before that, the next command of ours removes `_ff`.

Firmware without `__dict__` of modules (before 1.20) gives no access to its real builtins. Code that runs there finds
the builtins by their names, and so those that a program has replaced in the module `builtins`.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator

# Leaves no name in `__main__`, and is an empty dictionary. It must be the last argument: they are evaluated in order.
POP = b"_ff.globals().pop('_ff')and{}"
# The real builtins, as global names; firmware before 1.20 has an empty dictionary instead.
BUILTINS = b"_ff.getattr(_ff,'__dict__',{})"
PLAIN = b"import builtins as _ff\n_ff.exec(%b," + BUILTINS + b"," + POP + b")\n"
# Code that arrived damaged is a SyntaxError.
SEALED = PLAIN.replace(b"%b", b"(lambda c:c if _ff.__import__('binascii').crc32(c)==%d else'?')(%b)")
# As `PLAIN`, with an empty dictionary: code finds the builtins by their names. Run as a user's code is, beside which
# aiorepl still needs its `_ff`.
REPLACEABLE = "import builtins as _ffv\n_ffv.exec({code!r},_ffv.globals().pop('_ffv')and{{}})\n"

# Prints a token, however the program has named its variables.
ECHO = "import builtins as _ff\n_ff.print('{token}',end='')\ndel _ff"

# `_ffv` is gone before the expression begins: its dictionary is evaluated in order. The end of line ends a comment.
SHOW = (
    "import builtins as _ffv;_ffv.exec('print(r(v))',{{}},"
    "{{'r':_ffv.getattr(_ffv,'__dict__',{{}}).get('repr',_ffv.repr),'v':(_ffv.globals().pop('_ffv'),({expression}\n))[1]}})"
)

# To assemble code from pieces, `_ff` is a list: the text, `exec`, the names of `__main__`, and the builtins. The heap
# is collected first: if it is small and fragmented, neither the text nor its compiled code may fit.
BEGIN = (
    b"import gc as _ff\n_ff.collect()\nimport builtins as _ff",
    b"_ff=['',_ff.exec,_ff.globals(),_ff.getattr(_ff,'__dict__',{})]",
)
RUN = b"_ff[1](_ff[0],_ff[3],_ff[2].pop('_ff')and{})"
RUN_IN_MAIN = b"_ff[1](_ff[0],_ff[2].pop('_ff')[2])"


def wrap(code: bytes, *, sealed: bool = False) -> bytes:
    """Return `code`, which is fastflight's own, in the form in which it is sent to a raw REPL.

    `sealed`: the board runs it only if its crc32 is right, else it raises `SyntaxError`. The board must have
    `binascii.crc32`.
    """
    if sealed:
        return SEALED % (binascii.crc32(code), repr(code).encode())
    return PLAIN % repr(code).encode()


def wrap_for_program(code: str) -> str:
    """As `wrap`, for own code that is run as a user's code is, also beside a program that runs the agent.

    The agent receives what `print` writes by replacing it in `builtins`, so this code must not take the real one.
    """
    return REPLACEABLE.format(code=code)


def show(expression: str) -> str:
    """Return code that prints the value of a user's `expression`, however the program has named its variables.

    It is run as a user's code is: the expression sees `__main__`. As in `wrap_for_program`, `print` may be the agent's.
    """
    return SHOW.format(expression=expression)


def pieces(code: str, limit: int) -> Iterator[bytes]:
    """Yield statements of at most `limit` bytes that append `code` to the text in `_ff` (`BEGIN`)."""
    rest = code
    while rest:
        # Escapes can make a literal longer than its text.
        size = limit - len("_ff[0]+=''")
        while len(statement := f"_ff[0]+={rest[:size]!r}".encode()) > limit:
            size -= 1
        yield statement
        rest = rest[size:]
