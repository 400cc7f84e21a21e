"""Device URLs: an address, or a `RequestError` that names what is wrong. Nothing is opened."""

from __future__ import annotations

from fastflight.errors import RequestError
from fastflight.transport.url import parse_url, public_url
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target


def run(data: bytes) -> None:
    url = Material(data).stretched().decode("utf-8", "surrogateescape")
    try:
        address = parse_url(url)
    except RequestError as error:
        assert str(error)
    else:
        assert address.url == public_url(url)


TARGET = Target(
    run,
    modules=("fastflight.transport.url", "fastflight.transport.url_parts"),
    seeds=(
        b"\x00/dev/ttyACM0",
        b"\x00COM7",
        b"\x00serial:///dev/ttyUSB0?baud=115200&dtr=0&rts=1&drain=10",
        b"\x00serial:?serial_number=E66141&location=1-2",
        b"\x00socket://board.local:2218?baud=9600",
        b"\x00rfc2217://[fd00::1]:2217?dtr=0",
        b"\x00exec:micropython -X heapsize=4M?cwd=/tmp/x",
        b"\x00sim:?files=x&baud=115200&ring=512&telemetry=10&fault=drop-rx%3D0.1&fault=reset&seed=1",
    ),
    past=(b"\xffsim:?seed=0",),
)
