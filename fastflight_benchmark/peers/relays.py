"""The compared relays, each as a server. It has a port for each size of read, and prints the ports in this order.

    python -m fastflight_benchmark.peers.relays (ours | library) READ_BYTES...

`ours` is the gateway's relay. `library` reads the target with asyncio's streams and sends each read as a message with
the `websockets` library, without compression; a client's first message names the target.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Sequence

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

OURS, LIBRARY = "ours", "library"
HOST = "127.0.0.1"
# The same size as in the gateway's relay.
RECEIVE_BUFFER_BYTES = 256 * 1024


def main(arguments: Sequence[str]) -> None:
    kind, *sizes = arguments
    RELAYS[kind]([int(size) for size in sizes])


def announce(ports: Sequence[int]) -> None:
    """Print the line that the parent process waits for."""
    print(f"listening on {','.join(f'{HOST}:{port}' for port in ports)};", flush=True)


def ours(sizes: Sequence[int]) -> None:
    from fastflight.concurrency import Shard
    from fastflight.gateway import AllowedTargets, OriginPolicy, Relay, listen
    from fastflight.gateway.middleware import GatewayMiddleware
    from fastflight.gateway.ws.sockets import Sockets
    from fastflight.gateway.ws.tickets import Tickets

    gateways = []
    for size in sizes:
        sockets = Sockets({"tcp": Relay(AllowedTargets([f"{HOST}:*"]), read_bytes=size)}, Tickets())
        app = GatewayMiddleware(OriginPolicy(), _nothing, sockets)
        gateways.append(listen(app, Shard(f"relay-{size}").start(), 0))
    announce([gateway.port for gateway in gateways])
    threading.Event().wait()


async def _nothing(scope: object, receive: object, send: object) -> None:
    """The gateway's application, which is not used here."""


def library(sizes: Sequence[int]) -> None:
    asyncio.run(_library(sizes))


async def _library(sizes: Sequence[int]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        ports = []
        for size in sizes:

            async def relay(ws: ServerConnection, size: int = size) -> None:
                with contextlib.suppress(ConnectionClosed):
                    await _library_stream(ws, size)

            server = await stack.enter_async_context(serve(relay, HOST, 0, compression=None))
            ports.append(next(iter(server.sockets)).getsockname()[1])
        announce(ports)
        await asyncio.Event().wait()


async def _library_stream(ws: ServerConnection, size: int) -> None:
    host, _, port = str(await ws.recv()).rpartition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    sock.connect((host, int(port)))
    reader, writer = await asyncio.open_connection(sock=sock, limit=size)

    async def send() -> None:
        while data := await reader.read(size):
            await ws.send(data)

    sending = asyncio.create_task(send())
    try:
        async for message in ws:
            assert isinstance(message, bytes)
            writer.write(message)
    finally:
        sending.cancel()
        writer.close()


RELAYS = {OURS: ours, LIBRARY: library}


if __name__ == "__main__":
    main(sys.argv[1:])
