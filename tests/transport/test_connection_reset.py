"""A connection that is reset right behind its last bytes: both are seen, on either loop."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest

from fastflight.concurrency.shard import LOOPS
from fastflight.errors import TransportClosed
from fastflight.transport.port_tap import PortTap
from fastflight.transport.socket import SocketAddress
from fastflight.transport.tap import Tap

# Closed so, a socket sends RST instead of FIN.
AT_ONCE = struct.pack("ii", 1, 0)


@pytest.mark.parametrize("size", [0, 1, 300_000])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_who_listens_sees_the_last_bytes_and_the_reset(
    loop: Callable[[], asyncio.AbstractEventLoop], size: int
) -> None:
    async def main() -> bytes:
        got = bytearray()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = await SocketAddress("the board", "127.0.0.1", listener.getsockname()[1]).aopen(5)
            board, _ = listener.accept()
            port.tapping = PortTap(Tap(), notify=got.extend)
            listening = asyncio.ensure_future(port.alisten())
            await asyncio.sleep(0)
            board.send(bytes(size))
            board.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            board.close()
            with pytest.raises(TransportClosed, match="reset"):
                await asyncio.wait_for(listening, 20)
            await port.aclose()
        return bytes(got)

    with asyncio.Runner(loop_factory=loop) as runner:
        got = runner.run(main())
    assert len(got) == size or size > 1  # a reset may throw away what was not taken
