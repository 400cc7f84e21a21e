"""The initial files of a simulated board: the same bytes every time.

`/readings.csv`: 10,000 rows, one every ten seconds, with longer gaps as if the logger had been off.

===============  ==========================================================================
`time`           ISO 8601, UTC
`temperature`    degrees Celsius, two decimals; empty if the sensor did not answer
`humidity`       percent, one decimal; empty likewise
`pressure`       hectopascal, one decimal
`battery`        volts, three decimals
===============  ==========================================================================

`/events.jsonl`: 500 objects, one per line.

===============  ==========================================================================
`time`           ISO 8601, UTC
`event`          boot, button, wifi, error or upload
`level`          info, warning or error
`value`          a number that belongs to the event (button number, RSSI in dBm, rows...) or null
===============  ==========================================================================

`/log.bin`: 2,000 records of 9 bytes, `struct` format `<IhHB`.

===============  ==========================================================================
`ms`             uint32, milliseconds since power on
`temperature`    int16, hundredths of a degree Celsius
`light`          uint16, raw reading of the light sensor
`flags`          uint8, bit 0 = heater on, bit 1 = door open, bit 7 = clock not set
===============  ==========================================================================

`/main.py` starts a timer that prints lines of telemetry as JSON, and returns to the prompt. It prints nothing while
somebody types there.
"""

from __future__ import annotations

import json
import math
import os
import random
import struct
import time
from functools import cache

READINGS = 10_000
EVENTS = 500
RECORDS = 2_000
RECORD = struct.Struct("<IhHB")
# 2026-03-01T00:00:00Z.
START = 1_772_323_200
SEED = 1_815

MAIN = """\
# Prints one line of telemetry per tick of a timer, and leaves the prompt free for files and code.
import json
import math
import time

from machine import Timer

try:
    from simulator import TELEMETRY_HZ, somebody_types
except ImportError:  # a real board
    TELEMETRY_HZ = 10

    def somebody_types():
        return False


started = time.ticks_ms()


def tick(timer):
    if somebody_types():
        return
    ms = time.ticks_diff(time.ticks_ms(), started)
    slow = math.sin(ms / 60000)
    print(
        json.dumps(
            {
                "ms": ms,
                "temperature": round(21 + 3 * slow + 0.2 * math.sin(ms / 700), 2),
                "humidity": round(45 - 5 * slow, 1),
                "battery": round(4.1 - ms / 1e8, 3),
            }
        )
    )


if TELEMETRY_HZ:
    telemetry = Timer(-1)
    telemetry.init(mode=Timer.PERIODIC, period=max(1, int(1000 / TELEMETRY_HZ)), callback=tick)
"""


def contents() -> dict[str, bytes]:
    """Return the content of each sample file, by its name without a slash."""
    return {"readings.csv": readings(), "events.jsonl": events(), "log.bin": log(), "main.py": MAIN.encode()}


def write_samples(folder: str) -> None:
    """Write the files into `folder` if it is empty or does not exist."""
    os.makedirs(folder, exist_ok=True)
    if os.listdir(folder):
        return
    for name, data in contents().items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


@cache
def readings() -> bytes:
    chance = random.Random(SEED)
    lines = ["time,temperature,humidity,pressure,battery"]
    moment = START
    for row in range(READINGS):
        if chance.random() < 0.002:
            moment += 10 * chance.randint(30, 2000)
        day = math.sin(2 * math.pi * moment / 86_400)
        temperature = f"{18 + 6 * day + chance.gauss(0, 0.15):.2f}" if chance.random() > 0.004 else ""
        humidity = f"{55 - 15 * day + chance.gauss(0, 0.6):.1f}" if chance.random() > 0.004 else ""
        pressure = 1013 + 8 * math.sin(row / 1500) + chance.gauss(0, 0.1)
        battery = 4.15 - 0.6 * row / READINGS + chance.gauss(0, 0.002)
        lines.append(f"{_iso(moment)},{temperature},{humidity},{pressure:.1f},{battery:.3f}")
        moment += 10
    return ("\n".join(lines) + "\n").encode()


@cache
def events() -> bytes:
    chance = random.Random(SEED)
    lines = []
    moment = START
    for row in range(EVENTS):
        kind = "boot" if row % 100 == 0 else chance.choice(["button", "button", "wifi", "wifi", "upload", "error"])
        value: int | None = None
        level = "info"
        if kind == "button":
            value = chance.randint(1, 3)
        elif kind == "wifi":
            value = -chance.randint(40, 90)
            level = "warning" if value < -80 else "info"
        elif kind == "upload":
            value = chance.randint(1, 400)
        elif kind == "error":
            level = "error"
        lines.append(json.dumps({"time": _iso(moment), "event": kind, "level": level, "value": value}))
        moment += chance.randint(1, 600)
    return ("\n".join(lines) + "\n").encode()


@cache
def log() -> bytes:
    chance = random.Random(SEED)
    data = bytearray()
    for row in range(RECORDS):
        temperature = round(100 * (20 + 5 * math.sin(row / 200) + chance.gauss(0, 0.1)))
        light = max(0, round(30_000 + 25_000 * math.sin(row / 350) + chance.gauss(0, 200)))
        flags = (temperature < 1800) | (chance.random() < 0.01) << 1 | (row < 20) << 7
        data += RECORD.pack(250 * row, temperature, light, flags)
    return bytes(data)


def _iso(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
