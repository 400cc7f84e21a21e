"""What a client that does not read costs: of clients that are there."""

from __future__ import annotations

import pytest

from fastflight.errors import TransportError
from tests.campaigns import stalled_sockets
from tests.support.servers import serving


def test_clients_that_were_refused_are_not_measured() -> None:
    with serving({}) as server:
        stalled_sockets._refuse_fewer(server.location, 0)
        with pytest.raises(TransportError, match="0 streams are open of 3"):
            stalled_sockets._refuse_fewer(server.location, 3)
