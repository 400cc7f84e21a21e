"""Reads a line of `key=value` pairs as a JSON object: `temp=21.5 hum=40`, `temp: 21.5 C, hum: 40 %`, `a:1,b:2`.

All of the line must be pairs, except the prefix that a logger writes before them: a time, a level, the name of a
module. These become the keys `logged`, `ticks` (a number), `level` and `tag`. Known are the formats of Python's and
MicroPython's `logging`, ESP-IDF, Arduino on ESP32 and Zephyr, and a time or a level in front. After a prefix there may
also be a JSON object.

A number keeps its digits. A unit after it becomes a text of its own: `T=21.5C` is `{"T": 21.5, "T_unit": "C"}`. Blanks
in keys become `_`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache

from fastflight.tables.json_objects import parse_object, raw_values
from fastflight.tables.kinds import BOOLS, INFINITIES, MINUS_INFINITIES, NANS, NULLS

# The keys of a prefix.
PREFIX_KEYS = ("logged", "ticks", "level", "tag")
# How many parsed lines are cached: the lines by which a layout is recognised are parsed again as rows.
REMEMBERED = 256
_UNITS = """
    % %RH C F K °C °F degC degF deg ° V mV uV µV A mA uA µA W mW kW Wh kWh mAh Ah Hz kHz MHz GHz Pa hPa kPa MPa bar mbar
    psi ppm ppb s ms us µs ns min h m mm cm km um µm g kg mg ug/m3 µg/m3 N J T mT uT µT G dB dBm dBA rpm RPM lx lux lm
    ohm Ohm Ω kΩ l L ml mL l/h L/min m/s km/h mph m/s2 m/s^2 rad rad/s deg/s dps B kB KB MB kbps Mbps uS/cm µS/cm pH
""".split()
_UNIT = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
_NUMBER = r"[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?"
_DATE = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d++)?(?:Z|[+-]\d\d:?\d\d)?"
_END = r"(?=[\s,;|]|$)"
_PAIR = re.compile(
    r"(?P<key>[A-Za-z_µ°][\w.\-/]*+(?: [A-Za-z_][\w.\-/]*+){0,2})(?: ?[(\[](?P<of>[^()\[\]\s]{1,12})[)\]])?"
    r"(?:\s*=\s*|\s*:\s*)(?:"
    rf"(?P<list>[(\[]\s*{_NUMBER}(?:[,\s]\s*{_NUMBER})*\s*[)\]])|\"(?P<quoted>[^\"]*)\"|(?P<date>{_DATE}){_END}"
    rf"|(?P<number>{_NUMBER})(?:\s?(?P<unit>{_UNIT}))?{_END}|(?P<text>(?!//)[^\s,;|=]++)(?<!:)){_END}"
)
_BETWEEN = re.compile(r"\s*[,;|]\s*|\s+")
_LEVEL = r"(?P<level>TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRITICAL|FATAL|VERBOSE)"
_NAME = r"(?P<tag>[A-Za-z_][\w.\-/]*)"
_STAMP = rf"\[?(?P<logged>{_DATE}|\d\d:\d\d:\d\d(?:[.,]\d++)?)\]?"
# Between the parts of a prefix.
_SEP = r"(?:\s+[-|>]+|:)?\s+"
_TAG = rf"{_NAME}(?::|\s-)\s+"
_PREFIXES = [
    re.compile(pattern)
    for pattern in (
        r"(?P<level>[EWIDV]) \((?:(?P<ticks>\d+)|(?P<logged>[\d:.]+))\) (?P<tag>[^:\s]{1,40}): ",  # ESP-IDF
        r"\[\s*(?P<ticks>\d+)\]\[(?P<level>[EWIDV])\]\[(?P<tag>[^\]\s]{1,60})\] (?:\w+\(\): )?",  # Arduino on ESP32
        rf"\[(?P<logged>[\d:.,]+)\] <(?P<level>\w{{1,8}})> {_NAME}: ",  # Zephyr
        rf"{_LEVEL}:{_NAME}:\s*",  # Python, MicroPython
        rf"{_STAMP}{_SEP}{_NAME}{_SEP}{_LEVEL}{_SEP}",
        *(
            before + tag
            for before in (rf"{_STAMP}{_SEP}\[?{_LEVEL}\]?{_SEP}", rf"\[?{_LEVEL}\]?{_SEP}", rf"{_STAMP}{_SEP}", "")
            for tag in ("", _TAG)
        ),
    )
]
# How Zephyr shortens levels; `inf` would be a number.
_LEVELS = {"err": "error", "wrn": "warning", "inf": "info", "dbg": "debug"}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {
    **dict.fromkeys(NANS, "NaN"),
    **dict.fromkeys(INFINITIES, "Infinity"),
    **dict.fromkeys(MINUS_INFINITIES, "-Infinity"),
    **dict.fromkeys(NULLS, "null"),
    **{word: word.lower() for word in BOOLS},
}


@lru_cache(REMEMBERED)
def pairs_of(line: bytes) -> Mapping[str, str] | None:
    """Return the JSON text of each value of a line; None if the line is not one of pairs, or has a key twice."""
    text = _COLOURS.sub("", line.decode(errors="replace")).strip()
    if "=" not in text and ":" not in text:
        return None
    for prefix in _PREFIXES:
        if (match := prefix.match(text)) is None:
            continue
        found = {name: _prefix_value(name, match[name]) for name in match.groupdict() if match[name]}
        rest = text[match.end() :]
        if found and rest.startswith("{"):
            parsed = parse_object(rest.encode())
            values = None if isinstance(parsed, str) else raw_values(parsed[1])
        else:
            values = _pairs(rest)
        if values and not values.keys() & found.keys():
            return {**found, **values}
    return None


def as_object(line: bytes) -> bytes | None:
    """Return a line as a JSON object; None if it is not one of pairs."""
    pairs = pairs_of(line)
    if pairs is None:
        return None
    return ("{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in pairs.items()) + "}").encode()


def _pairs(text: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        if (match := _PAIR.match(text, at)) is None:
            return None
        name = "_".join([match["key"].replace(" ", "_"), *filter(None, [match["of"]])])
        values = {name: _value(match)} | ({f"{name}_unit": json.dumps(match["unit"])} if match["unit"] else {})
        if found.keys() & values.keys():
            return None
        found |= values
        at = match.end()
        if at < len(text):
            between = _BETWEEN.match(text, at)
            assert between is not None  # a pair ends before one
            at = between.end()
    return found


def _value(match: re.Match[str]) -> str:
    if (number := match["number"]) is not None:
        return _number(number)
    if (numbers := match["list"]) is not None:
        return f"[{', '.join(map(_number, re.findall(_NUMBER, numbers)))}]"
    if (text := match["text"]) is not None:
        return _WORDS.get(text) or json.dumps(text)
    return json.dumps(match["date"] or match["quoted"])


def _number(text: str) -> str:
    """Return a number as JSON writes it, or as text if that would change it: `007` is none."""
    plain = text.removeprefix("+")
    sign, digits = ("-", plain[1:]) if plain.startswith("-") else ("", plain)
    digits = f"0{digits}" if digits.startswith(".") else digits
    digits = f"{digits}0" if digits.endswith(".") else digits
    return f"{sign}{digits}" if _JSON_NUMBER.fullmatch(f"{sign}{digits}") else json.dumps(text)


def _prefix_value(name: str, text: str) -> str:
    if name == "ticks":
        return _number(text)
    if name == "logged":  # Python writes a comma before the milliseconds, Zephyr one after them
        return json.dumps(text.replace(",", "" if "." in text else "."))
    return json.dumps(_LEVELS.get(text, text))
