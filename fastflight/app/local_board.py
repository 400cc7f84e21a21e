"""One board without a server that runs already: commands start a server of their own for it, in their process.

So each verb works on a board on the desk as it works on a server's devices, and nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastflight.app.running import RunningServer
from fastflight.app.settings import ServeSettings
from fastflight.errors import TransportError
from fastflight.transport.identity import FoundPort, format_ports, system_ports
from fastflight.transport.url import parse_url

# The name of the board, for `DEVICE:PATH` and in errors.
BOARD = "board"
# The URL that means the only board that is plugged in.
AUTO = "auto"


def open_local_board(url: str) -> RunningServer:
    """Start a server for the board at `url`, on a free port of the loopback interface.

    With the URL `auto`, for the one that `find_board` finds. `RequestError` if `url` is not a device URL.
    """
    if url == AUTO:
        url = find_board(system_ports())
    parse_url(url)
    # Importing the server takes longer than most commands take to run.
    from fastflight.app.compose import open_server

    return open_server(ServeSettings("grpc://127.0.0.1:0", {BOARD: url}, shards=1, drain_seconds=0.0))


def find_board(ports: Iterable[FoundPort]) -> str:
    """Return the only one of `ports` that belongs to a USB device. `TransportError` if there is none, or several."""
    boards = [port for port in ports if port.vid is not None]
    if not boards:
        raise TransportError(
            "no board is plugged in", hint="Plug one in, or name its port or URL: --device socket://host:port"
        )
    if len(boards) > 1:
        raise TransportError(
            f"{len(boards)} boards are plugged in: {format_ports(boards)}",
            hint=f"Choose one: --device {min(board.device for board in boards)}",
        )
    return boards[0].device
