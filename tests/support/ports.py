"""`open_port(address)`: a port for a thread, on a loop of its own, which ends with the port."""

from __future__ import annotations

import asyncio
from typing import Any

from fastflight.concurrency import Shard
from fastflight.concurrency.portal import Portal
from fastflight.device.line import own_shard
from fastflight.transport import Address, Port


def open_port(address: Address, timeout: float) -> ThreadPort:
    shard = own_shard(address.url)
    try:
        return ThreadPort(Portal(shard.loop, RuntimeError).call(address.aopen(timeout)), shard)
    except BaseException:
        shard.close()
        raise


class ThreadPort:
    """A port with blocking calls, which close its loop as well. All else is as on the `port` itself."""

    def __init__(self, port: Port, shard: Shard) -> None:
        vars(self).update(port=port, shard=shard)

    def read(self, timeout: float) -> bytes:
        data: bytes = self.port.portal.call(self.port.aread(timeout))
        return data

    def write(self, data: bytes, timeout: float) -> None:
        self.port.portal.call(self.port.awrite(data, timeout))
        self.port.portal.call(self.port.adrain(timeout))

    def close(self) -> None:
        try:
            self.port.close()
        finally:
            self.shard.close()

    async def aclose(self) -> None:
        try:
            await self.port.aclose()
        finally:
            await asyncio.to_thread(self.shard.close)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["port"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.port, name, value)
