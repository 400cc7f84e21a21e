"""The servers of the suites `flight` and `requests`: how each is asked for the table, and what its answer must have.

`sync` and `async` are fastflight's two paths. The others are peers, each in a process of its own. The names are the
contenders of a result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from fastflight.service import encode
from fastflight_benchmark import mock
from fastflight_benchmark.mock import Mock

Mode = Literal["sync", "async"]

SYNC: Final = "sync"
ASYNC: Final = "async"
BARE = "bare"
NAMESAKE_SYNC, NAMESAKE_ASYNC = "fastflight-0.4-sync", "fastflight-0.4-async"
MODES: tuple[Mode, ...] = (SYNC, ASYNC)
NAMESAKES = (NAMESAKE_SYNC, NAMESAKE_ASYNC)
PEERS = (BARE, *NAMESAKES)
# In the order in which they take turns.
SERVERS = (BARE, *MODES, *NAMESAKES)


@dataclass(frozen=True, slots=True)
class Contender:
    """`path` is the `fastflight.path` that the answer's schema must have. It is empty for a peer without paths."""

    path: str
    ticket: Callable[[Mock], bytes]
    has_trailer: bool = False


def ours(mode: str) -> Callable[[Mock], bytes]:
    """Return the ticket for fastflight on one of its paths."""
    return lambda request: encode(request.model_copy(update={"mode": mode}))


def namesake(parameters: str) -> Callable[[Mock], bytes]:
    """Return the ticket for PyPI's fastflight: parameters, and the name of their class in `peers/namesake.py`."""

    def ticket(request: Mock) -> bytes:
        parameter_values = {
            "param_type": f"__main__.{parameters}",
            "total_rows": request.total_rows,
            "rows_per_batch": request.rows_per_batch,
            "delay_per_row": request.delay_per_row,
            "columns": len(mock.schema(request.variant)),
        }
        return json.dumps(parameter_values).encode()

    return ticket


CONTENDERS: Mapping[str, Contender] = {
    SYNC: Contender(SYNC, ours(SYNC), has_trailer=True),
    ASYNC: Contender(ASYNC, ours(ASYNC), has_trailer=True),
    BARE: Contender("", encode),
    NAMESAKE_SYNC: Contender(SYNC, namesake("SyncTable")),
    NAMESAKE_ASYNC: Contender(ASYNC, namesake("AsyncTable")),
}
