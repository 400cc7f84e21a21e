"""Whether all arrives: a long stream there and back by our client, in segments of random sizes.

What is sent is hard on Telnet: half of it are bytes that mean something there. What comes back is compared with it as
it comes, and the bytes that are not what was sent are counted, those that never came among them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

from fastflight.errors import FastFlightError
from fastflight.transport import Port, parse_url
from fastflight_benchmark.suites.bridge import rows, servers
from fastflight_benchmark.suites.bridge.connect import url
from fastflight_benchmark.suites.bridge.rows import Row
from fastflight_benchmark.suites.bridge.servers import RAW, RFC2217
from fastflight_benchmark.suites.bridge.traffic import SOCKET

WRONG, SPEED = "lost or changed", "there and back"
# Prime, so that no segment size divides it: a piece that was lost or moved does not match by chance.
BLOCK_BYTES = 4_194_301
# IAC, SE, SB, will to break, a carriage return, NUL, the flow control characters, and COM-PORT-OPTION.
HARD = bytes((0xFF, 0xFF, 0xFF, 0xF0, 0xFA, 0xF3, 0x0D, 0x0A, 0x00, 0x11, 0x13, 0x2C))
LARGEST_SEGMENT = 128 * 1024
SECONDS = 30.0
CLIENT = "fastflight"


def there_and_back(size: int, number: int) -> Iterator[Row]:
    """`size` bytes each way at the same time, through both ports."""
    for port in (RAW, RFC2217):
        with servers.null_device(terminal=False) as device, servers.fastflight(device) as bridge:
            wrong, seconds, failure = size, float("nan"), ""
            try:
                wrong, seconds = _compared(url(bridge.ports[port], port), size, number)
            except FastFlightError as error:
                failure = str(error)
        for work, unit, value in ((WRONG, rows.BYTES, float(wrong)), (SPEED, rows.RATE, size / seconds / 1e6)):
            yield Row(rows.WHOLE, bridge.name, port, SOCKET, CLIENT, work, "hard", number, unit, value, failure)


def hard_block(seed: int) -> bytes:
    """Stretches of random bytes and of those that Telnet gives a meaning to."""
    chance = random.Random(seed)
    pieces: list[bytes] = []
    missing = BLOCK_BYTES
    while missing > 0:
        length = min(missing, chance.randint(1, 4096))
        pieces.append(chance.randbytes(length) if chance.random() < 0.5 else bytes(chance.choices(HARD, k=length)))
        missing -= length
    return b"".join(pieces)


def differing(found: bytes, expected: bytes) -> int:
    """Places where the two are not the same."""
    return 0 if found == expected else sum(one != other for one, other in zip(found, expected, strict=True))


def _compared(there: str, size: int, seed: int) -> tuple[int, float]:
    """How many bytes did not come back as they were sent, and in how many seconds all did."""
    # Twice, so that what is taken at any place is one slice.
    block = hard_block(seed) * 2
    port = parse_url(there).open(SECONDS)
    try:
        port.write(f"echo {size} {seed}\n".encode(), SECONDS)
        began = time.perf_counter()
        sending = threading.Thread(target=_send, args=(port, block, size, seed), name="segments")
        sending.start()
        wrong = came = 0
        try:
            while came < size:
                data = port.read(SECONDS)[: size - came]
                for start in range(0, len(data), BLOCK_BYTES):
                    piece = data[start : start + BLOCK_BYTES]
                    place = (came + start) % BLOCK_BYTES
                    wrong += differing(piece, block[place : place + len(piece)])
                came += len(data)
        except FastFlightError:
            wrong += size - came
        seconds = time.perf_counter() - began
    finally:
        port.close()
    sending.join()
    return wrong, seconds


def _send(port: Port, block: bytes, size: int, seed: int) -> None:
    chance = random.Random(seed)
    sent = 0
    try:
        while sent < size:
            # As often tiny as large.
            most = LARGEST_SEGMENT >> chance.randint(0, 16)
            length = min(size - sent, chance.randint(1, most))
            place = sent % BLOCK_BYTES
            port.write(block[place : place + length], SECONDS)
            sent += length
    except FastFlightError:
        # The line is gone: the reader counts what did not come.
        return
