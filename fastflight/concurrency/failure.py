"""How a source's failure is raised to its reader, who is in another thread, on another loop, or inside a generator."""

from __future__ import annotations

import asyncio
import concurrent.futures

from fastflight.errors import FastFlightError, Stopped


def failure_of(raised: BaseException) -> Exception:
    """What to raise for it: itself, but for what would end more than the answer, or look as if the reader had left.

    A cancelled source is one that was `Stopped`. What is raised in its place has it as its cause.
    """
    failure: Exception
    if isinstance(raised, asyncio.CancelledError | concurrent.futures.CancelledError):
        failure = Stopped("the source was cancelled", hint="Ask again")
    elif isinstance(raised, Exception):
        return raised
    else:
        failure = FastFlightError(f"the source raised {type(raised).__name__}")
    failure.__cause__ = raised
    return failure
