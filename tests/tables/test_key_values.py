"""Lines of `key=value` pairs as rows: what boards and their loggers really print, and what must stay text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.tables.json_objects import parse_object
from fastflight.tables.key_values import as_object
from fastflight.tables.recognition import Recognised, recognise

DAY = "2026-11-30 12:00:00"
ESP_BOOT = """\
ets Jun  8 2016 00:22:57
rst:0x1 (POWERON_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)
configsip: 0, SPIWP:0xee
load:0x3fff0030,len:1344
I (29) boot: ESP-IDF v5.1 2nd stage bootloader
I (33) boot: Partition Table:
I (610) wifi:mode : sta (24:0a:c4:00:00:00)
I (1200) wifi:state: init -> auth (b0)
"""
GPS = """\
$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47
$GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W*6A
$GPGSA,A,3,04,05,,09,12,,,24,,,,,2.5,1.3,2.1*39
$GPGSV,2,1,08,01,40,083,46,02,17,308,41,12,07,344,39,14,22,228,45*75
"""


def row(line: str) -> Any:
    found = as_object(line.encode())
    return None if found is None else json.loads(found)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("temp=21.5 hum=40", {"temp": 21.5, "hum": 40}),
        ("temp: 21.5, hum: 40", {"temp": 21.5, "hum": 40}),
        ("a:1,b:2", {"a": 1, "b": 2}),  # the serial plotter of Arduino
        ("a:1\tb:2", {"a": 1, "b": 2}),
        ("x = 1; y = -2e3;", {"x": 1, "y": -2000.0}),
        ("T=21.5C", {"T": 21.5, "T_unit": "C"}),
        ("Temp: 21.5 °C, Humidity: 40 %", {"Temp": 21.5, "Temp_unit": "°C", "Humidity": 40, "Humidity_unit": "%"}),
        ("Soil moisture: 33, Air temp (C): 21.5", {"Soil_moisture": 33, "Air_temp_C": 21.5}),
        ("acc=(0.1, -0.2, 9.8) gyro=[1 2 3]", {"acc": [0.1, -0.2, 9.8], "gyro": [1, 2, 3]}),
        ("id=007 up=+5 z=.5 n=5.", {"id": "007", "up": 5, "z": 0.5, "n": 5.0}),
        ("ok=True none=None far=inf", {"ok": True, "none": None, "far": float("inf")}),
        ('s="a, b=c" q=\'x y\' e=""', None),
        ('s="a, b=c" e=""', {"s": "a, b=c", "e": ""}),
        ("ip=192.168.0.1 rssi=-60dBm id=5fa3", {"ip": "192.168.0.1", "rssi": -60, "rssi_unit": "dBm", "id": "5fa3"}),
        ("at=2026-11-30 12:00:00 v=3", {"at": "2026-11-30 12:00:00", "v": 3}),
        ("sensor: t=21.5", {"tag": "sensor", "t": 21.5}),
        (f"{DAY} INFO sensor: t=21.5", {"logged": DAY, "level": "INFO", "tag": "sensor", "t": 21.5}),
        (f"{DAY},123 - sensor - INFO - t=1", {"logged": f"{DAY}.123", "tag": "sensor", "level": "INFO", "t": 1}),
        ("2026-11-30T12:00:00Z [WARNING] t=1", {"logged": "2026-11-30T12:00:00Z", "level": "WARNING", "t": 1}),
        ("12:00:05.123 -> temp: 21.5 hum: 40%", {"logged": "12:00:05.123", "temp": 21.5, "hum": 40, "hum_unit": "%"}),
        ("INFO:root:t=1", {"level": "INFO", "tag": "root", "t": 1}),
        ("WARNING: battery: 3.3V", {"level": "WARNING", "battery": 3.3, "battery_unit": "V"}),
        ("I (1234) tag: temp=21.5", {"level": "I", "ticks": 1234, "tag": "tag", "temp": 21.5}),
        ("\x1b[0;33mW (12:00:01.5) a: t=21.5\x1b[0m", {"level": "W", "logged": "12:00:01.5", "tag": "a", "t": 21.5}),
        ("[  1234][I][main.cpp:12] loop(): t=1", {"ticks": 1234, "level": "I", "tag": "main.cpp:12", "t": 1}),
        ("[00:00:12.345,000] <inf> main: t=1", {"logged": "00:00:12.345000", "level": "info", "tag": "main", "t": 1}),
        ('I (1) app: {"t": 1, "b": [1.0]}', {"level": "I", "ticks": 1, "tag": "app", "t": 1, "b": [1.0]}),
    ],
)  # fmt: skip
def test_pairs_of_boards_and_loggers(line: str, expected: Any) -> None:
    assert row(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        *("", "hello", "21.5", "1,2,3", "temp", "temp=", "=5", "temp=1 and more", "a=1 a=2", "5fa3=1", "see http://a.b/c"),
        *("12:30:01", "Traceback (most recent call last):", '  File "main.py", line 3, in <module>', ">>> t=1"),
        *("I (5) wifi: connected to ap", f"{DAY} INFO started", *ESP_BOOT.splitlines()[:2], *GPS.splitlines()),
    ],
)  # fmt: skip
def test_other_text_is_no_row(line: str) -> None:
    assert row(line) is None


@given(st.text(max_size=60) | st.text(alphabet='ab =:,;."0123456789+-eE[]()CV%\n', max_size=60))
def test_any_line_is_an_object_or_text(line: str) -> None:
    found = as_object(line.encode(errors="replace"))
    assert found is None or not isinstance(parse_object(found), str)


@given(st.dictionaries(st.from_regex(r"\A[a-z_]{1,8}\Z"), st.integers() | st.floats(allow_nan=False), min_size=1))
def test_numbers_are_exact_however_pairs_are_written(values: dict[str, float]) -> None:
    for form in ("{}={} ", "{}: {}, ", "{}:{}\t"):
        found = row("".join(form.format(name, value) for name, value in values.items()))
        assert found == values


def recognised(*lines: str) -> Recognised | None:
    return recognise([line.encode() for line in lines])


def test_a_table_of_pairs_has_the_columns_of_its_lines_and_counts_the_others() -> None:
    readings = [f"I ({n}) sensor: temp={20 + n / 2} hum={n}" for n in range(10)]
    found = recognised(*readings)
    assert found is not None and found.valued == ("temp", "hum")
    parser = found.parser()
    lines = [line.encode() for line in (*ESP_BOOT.splitlines(), readings[0], "I (9) sensor: hum=1 temp=off")]
    parsed = parser.parse(lines)
    assert parsed.rows.to_pylist() == [
        {"level": "I", "ticks": 0, "tag": "sensor", "temp": 20.0, "hum": 0},
        {"level": "I", "ticks": 9, "tag": "sensor", "temp": None, "hum": 1},
    ]
    assert len(parsed.refused) == len(ESP_BOOT.splitlines()) and parser.summary.null_cells == {"temp": 1}
    assert Recognised.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_a_header_or_some_text_before_does_not_matter_and_text_is_no_table() -> None:
    found = recognised(
        *ESP_BOOT.splitlines()[:3], *["t=1", "h=2"] * 4, "Traceback (most recent call last):", "OSError: 5"
    )
    assert found is not None and found.valued == ("t", "h")
    assert found.parser().schema.names == ["t", "h"]
    assert recognised(*ESP_BOOT.splitlines()) is None
    assert recognised(*["name: bob"] * 5) is None and recognised(*["INFO:root:started"] * 5) is None
    assert recognised("t=1", "t=2") is None


def test_sentences_of_a_gps_are_text() -> None:
    assert recognised(*GPS.splitlines() * 4) is None
    assert recognised(*GPS.splitlines()[:1] * 9) is None
