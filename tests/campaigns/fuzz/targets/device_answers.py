"""What a board prints, as values: the probe's lines, literals, tracebacks. Any text is an answer, or a `ValueError`."""

from __future__ import annotations

from fastflight.device import answers
from fastflight.device.answers import failure, own_failure, routine_failure
from fastflight.device.capabilities import parse
from fastflight.errors import DeviceError, ProtocolError
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target


def run(data: bytes) -> None:
    material = Material(data)
    kind = material.byte() % 3
    said = material.stretched()
    if kind == 0:
        try:
            known = parse(said)
        except ProtocolError:
            return
        assert known.block_bytes > 0
        assert isinstance(known.epoch_offset, int) and isinstance(known.unique_id, str)
    elif kind == 1:
        for make in (failure, own_failure, routine_failure):
            error = make(said, where="/x", platform="webassembly" if len(said) & 1 else "rp2")
            assert isinstance(error, DeviceError | ProtocolError)
            assert str(error)
    else:
        try:
            answers.literal(said.decode("utf-8", "replace"))
        except ValueError:
            return


TARGET = Target(
    run,
    modules=(
        "fastflight.device.answers",
        "fastflight.device.capabilities",
    ),
    seeds=(
        b"\x00\x00hashlib.sha256\nplatform='esp32'\nfree_memory=99999\nepoch=2000\nunique_id=b'\\x01'\r\n",
        b"\x00\x00version='3.4.0; MicroPython v1.27'\nmachine=None\nfree_memory=-1",
        b'\x01\x00Traceback (most recent call last):\n  File "<stdin>", line 1\nOSError: [Errno 2] ENOENT\n',
        b"\x01\x00Traceback (most recent call last):\r\nMemoryError: memory allocation failed, allocating 1024 bytes\n",
        b"\x01\x00ValueError: invalid syntax for integer",
        b"\x01\x00OSError: file not found",
        b"\x02\x00('name', 32768, 5, None)",
        b"\x02\x00[1.5e3, 2j, -0x1F, {'a': b'\\xff'}, True]",
    ),
    past=(b"\x01\xffOSError: 9",),
)
