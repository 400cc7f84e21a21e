"""What `fastflight.client` and `fastflight` promise to hold."""

from __future__ import annotations

import fastflight
from fastflight import client


def test_the_client_holds_what_it_promises() -> None:
    assert sorted(client.__all__) == sorted(set(client.__all__))
    assert all(getattr(client, name) is not None for name in client.__all__)


def test_the_clients_are_at_the_top() -> None:
    assert fastflight.FastFlightClient is client.FastFlightClient
    assert fastflight.AsyncFastFlightClient is client.AsyncFastFlightClient


def test_all_at_the_top_is_there() -> None:
    assert sorted(fastflight.__all__) == sorted(set(fastflight.__all__))
    assert all(getattr(fastflight, name) is not None for name in fastflight.__all__)
    assert not hasattr(fastflight, "Nothing")
