"""The fleet file: settings, or a `RequestError` that names the key. Nothing of it is opened."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

from fastflight.app.overlay import read_config
from fastflight.errors import RequestError
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target


class Given(type(Path())):  # type: ignore[misc]
    """A file that holds what it is told."""

    content = b""

    def open(self, *_: Any, **__: Any) -> IO[Any]:
        return io.BytesIO(self.content)


def run(data: bytes) -> None:
    fleet = Given("/fleet.toml")
    Given.content = Material(data).stretched()
    try:
        settings = read_config("grpc://127.0.0.1:0", [], fleet)
    except RequestError as error:
        assert str(error)
    else:
        assert all(device.url for device in settings.devices.values())


TARGET = Target(
    run,
    seeds=(
        b'\x00[devices.weather]\nurl= "serial:///dev/ttyACM0"\nbridge={rfc2217=2217,socket=2218}\nrecord=true\n',
        b'\x00[devices]\na.url = "sim:"\n[limits]\nstreams = 10\nwait_seconds = 1.5\nper_identity = 3\n',
        b'\x00[devices.a]\nurl="sim:"\n[recordings]\nfolder = "kept"\n[relay]\nallow = ["127.0.0.1:2218"]\n',
        b'\x00devices."x y".url = "sim:"\n',
        b"\x00[devices.a]\nurl = 1979-05-27T07:32:00Z\nbridge = {viewers = 0x10}\n",
    ),
    past=(b"\xffa = [", b'\x00[devices.a]\nurl="m"\n[recordings]\nfolder = "~~"'),
    max_bytes=400,
)
