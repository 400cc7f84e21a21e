"""Messages of servers with recorded rows that say which they are."""

from __future__ import annotations

from fastflight.cluster.shipment import Run, Shipment, decode, encode
from fastflight.log.bodies import joined
from tests.log.rows import batch_of


def shipment(server: str, *runs: Run) -> Shipment:
    """Return what other servers get of these runs."""
    found = decode(encode(server, joined([batch_of(run.device, run.first, run.length) for run in runs]), runs))
    assert found is not None
    return found
