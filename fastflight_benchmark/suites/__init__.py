"""What `run_benchmark.py --suite NAME` can run: a module per suite, and its line in `SUITES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastflight_benchmark.suites import (
    boards,
    bridge,
    endpoints,
    flight,
    http,
    identity,
    memory,
    page,
    relay,
    requests,
    sessions,
    transfer,
)
from fastflight_benchmark.suites.options import Options

__all__ = ["SELECTABLE", "SUITES", "Options"]

# Runs the suite, writes its files, and says how many requests failed.
Suite = Callable[[Options], int]

SUITES: Mapping[str, Suite] = {
    "flight": flight.run,
    "requests": requests.run,
    "memory": memory.run,
    "transfer": transfer.run,
    "boards": boards.run,
    "bridge": bridge.run,
    "http": http.run,
    "relay": relay.run,
    "page": page.run,
    "endpoints": endpoints.run,
    "sessions": sessions.run,
    "identity": identity.run,
}
# Suites whose cells can be chosen, and whose server can be profiled.
SELECTABLE = frozenset({"flight", "requests"})
