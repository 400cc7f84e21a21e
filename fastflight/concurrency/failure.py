"""The exception that a reader gets for a source's failure in another thread, on another loop or in a generator."""

from __future__ import annotations

import asyncio
import concurrent.futures

from fastflight.errors import FastFlightError, Stopped


def failure_of(raised: BaseException) -> Exception:
    """The exception to raise for `raised`.

    It is `raised` itself, unless that would end more than the answer, or look as if the reader had left: then it is
    another one with `raised` as its cause, which for a cancelled source is `Stopped`.
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
