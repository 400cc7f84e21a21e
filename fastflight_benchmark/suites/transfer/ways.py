"""The words of the suites that move files, and the path that a session takes. Imports as little as can be."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastflight.device import AsyncSession, Session

SYNC, ASYNC = "sync", "async"
OURS = (SYNC, ASYNC)
UPLOAD, DOWNLOAD = "upload", "download"
# Who has the board, as others would be told.
HOLDER = "benchmark"


def path_of(session: Session | AsyncSession) -> str:
    """The path that a session's calls take."""
    return ASYNC if isinstance(session, AsyncSession) else SYNC


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    """`content`, as coroutines take it."""
    yield content
