"""Checks that all bytes arrive: fastflight's client sends a long stream through a bridge and back, in random segments.

The content is difficult for Telnet: half of it are bytes with a meaning there. The received bytes are compared with the
sent ones as they arrive. Changed bytes and missing bytes are counted.
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
# A prime number, so no segment size divides it: a lost or moved segment does not match by chance.
BLOCK_BYTES = 4_194_301
# IAC, SE, SB, BREAK, a carriage return, NUL, the flow control characters, and COM-PORT-OPTION.
HARD = bytes((0xFF, 0xFF, 0xFF, 0xF0, 0xFA, 0xF3, 0x0D, 0x0A, 0x00, 0x11, 0x13, 0x2C))
LARGEST_SEGMENT = 128 * 1024
SECONDS = 30.0
CLIENT = "fastflight"


def there_and_back(size: int, number: int) -> Iterator[Row]:
    """Send `size` bytes and receive them at the same time, through both ports. Yield wrong bytes and rate of each."""
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
    """Return alternating pieces of random bytes and of bytes with a meaning in Telnet."""
    chance = random.Random(seed)
    pieces: list[bytes] = []
    remaining = BLOCK_BYTES
    while remaining > 0:
        length = min(remaining, chance.randint(1, 4096))
        pieces.append(chance.randbytes(length) if chance.random() < 0.5 else bytes(chance.choices(HARD, k=length)))
        remaining -= length
    return b"".join(pieces)


def differing(found: bytes, expected: bytes) -> int:
    """Return how many bytes differ."""
    return 0 if found == expected else sum(one != other for one, other in zip(found, expected, strict=True))


def _compared(address: str, size: int, seed: int) -> tuple[int, float]:
    """Return how many bytes received back wrong or not at all, and the seconds of the whole stream."""
    # The block twice, so that the expected bytes at any place are one slice.
    block = hard_block(seed) * 2
    port = parse_url(address).open(SECONDS)
    try:
        port.write(f"echo {size} {seed}\n".encode(), SECONDS)
        began = time.perf_counter()
        sending = threading.Thread(target=_send, args=(port, block, size, seed), name="segments")
        sending.start()
        wrong = received = 0
        try:
            while received < size:
                data = port.read(SECONDS)[: size - received]
                for start in range(0, len(data), BLOCK_BYTES):
                    piece = data[start : start + BLOCK_BYTES]
                    place = (received + start) % BLOCK_BYTES
                    wrong += differing(piece, block[place : place + len(piece)])
                received += len(data)
        except FastFlightError:
            wrong += size - received
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
            # The sizes are spread over all orders of magnitude.
            most = LARGEST_SEGMENT >> chance.randint(0, 16)
            length = min(size - sent, chance.randint(1, most))
            place = sent % BLOCK_BYTES
            port.write(block[place : place + length], SECONDS)
            sent += length
    except FastFlightError:
        # The line is lost. The reader counts the missing bytes.
        return
