"""What a client that does not read costs: of clients that are there."""

from __future__ import annotations

import pytest

from fastflight.errors import TransportError
from tests.campaigns import stalled_streams
from tests.support.servers import serving


def test_clients_that_were_refused_are_not_measured() -> None:
    with serving({}) as server:
        stalled_streams._refuse_fewer(server.location, 0)
        with pytest.raises(TransportError, match="0 streams are open of 3"):
            stalled_streams._refuse_fewer(server.location, 3)
