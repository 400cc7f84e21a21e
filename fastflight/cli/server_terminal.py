"""A terminal of a server's device: a session that holds the device's line."""

from __future__ import annotations

from fastflight.client.interaction import Interaction
from fastflight.client.meaning import content, text, understood
from fastflight.errors import TransportClosed
from fastflight.service.requests import DEVICE_GONE, SERVER_DRAINING


class ServerTerminal:
    """The methods of `BoardTerminal`, over a session."""

    def __init__(self, session: Interaction) -> None:
        self._session = session
        self.send = session.send
        self.done = session.done
        self.cancel = session.cancel
        self.settle = session.settle

    def receive(self) -> list[tuple[bool, bytes]] | None:
        """As `BoardTerminal.receive`. Raises `TransportClosed` if the session was ended by the board or the server."""
        batch = self._session.receive()
        if batch is None:
            self._check_end()
            return None
        with understood("a row of the session"):
            # Without the column of times, for which Arrow would import pandas.
            rows = batch.select(["direction", "data"]).to_pylist()
            return [(row["direction"] == "rx", content(row["data"])) for row in rows]

    def _check_end(self) -> None:
        summary = self._session.rows.summary
        if summary.get("ended") == DEVICE_GONE:
            with understood("the end of a session"):
                why = text(summary.get("why", ""))
            raise TransportClosed(why or "the board is gone")
        if summary.get("ended") == SERVER_DRAINING:
            raise TransportClosed("the server shuts down")
