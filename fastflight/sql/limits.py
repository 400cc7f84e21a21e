"""The limits of queries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """The limits of each query, and of queries at a time.

    `seconds` is the time that the server works on a query, without the time in which the client does not read.
    """

    memory_bytes: int = 512 << 20
    threads: int = 2
    seconds: float = 60.0
    rows: int = 100_000_000
    queries: int = 4
