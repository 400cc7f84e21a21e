"""A bridge in front of a device for the length of a block, for tools that block: mpremote, pyserial, esptool.

    with bridged("sim:") as ports:
        ports["socket"]              # "socket://127.0.0.1:40123"
        ports["rfc2217"]             # "rfc2217://127.0.0.1:40124"

It runs on a loop and in a thread of its own; both are gone when the block has ended, and so is what the address holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

from fastflight.bridge import Bridge, DeviceFront, Ports
from fastflight.concurrency import Shard
from fastflight.device import Device
from fastflight.transport import Address, parse_url

HOST = "127.0.0.1"
PORTS = Ports(0, 0, 0)


@contextmanager
def bridged(
    url: str, *, takeover: bool = False, parse: Callable[[str], Address] = parse_url
) -> Iterator[Mapping[str, str]]:
    """What to connect to, by the kind of port: `rfc2217`, `socket`, `viewers`."""
    shard = Shard("bridge")
    with closing(Device("board", parse(url), shard=shard)) as device, shard:
        bridge = Bridge(DeviceFront(device), PORTS, host=HOST, takeover=takeover)
        shard.submit(bridge.start()).result()
        try:
            yield bridge.ports.urls(HOST)
        finally:
            shard.submit(bridge.aclose()).result()
