"""Makes the tables of the page on limits from the constants of the code and the comments above them.

Each `MAX_...` of a module in `SECTIONS` is a row, and for the edges each `..._SECONDS` too. A comment belongs to the
first constant below it. A `MAX_...` without one is a `ValueError`: the page has to say what it is for.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import fastflight

PACKAGE = Path(fastflight.__file__).parent
# Headings of the page: the folders or modules below each, and what their constants are called.
SIZES = r"MAX_\w+"
TIMES = rf"{SIZES}|\w+_SECONDS"
SECTIONS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("Requests", SIZES, ("service", "server", "access", "sql", "errors.py")),
    ("Tables", SIZES, ("tables",)),
    ("Answers of a board", SIZES, ("device", "protocol", "transport")),
    ("HTTP", TIMES, ("gateway/http", "gateway/content", "gateway/errors.py", "gateway/origins.py")),
    ("WebSockets and the page", TIMES, ("gateway/ws", "gateway/page")),
    ("Relay", TIMES, ("gateway/relay",)),
    ("Bridge", TIMES, ("bridge",)),
    ("Files of the server", SIZES, ("app/fleet_file.py", "app/key_files.py", "log")),
)
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
# Limits on numbers.
LEFT_OUT = {"MAX_MAGNITUDE", "MAX_DIGITS", "MAX_PORT", "MAX_PORT_DIGITS"}


def limits_part() -> str:
    """Return the tables: constant, value, and what the comment above it says."""
    parts = []
    for heading, pattern, places in SECTIONS:
        rows = [row for place in places for path in paths(PACKAGE / place) for row in limits(path, pattern)]
        lines = [f"| `{name}` | {value} | {text} |" for name, value, text in rows]
        parts += [f"### {heading}", "\n".join(["| limit | value | |", "|---|---:|---|", *lines])]
    return "\n\n".join(parts)


def paths(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def limits(path: Path, pattern: str) -> Iterator[tuple[str, str, str]]:
    """Yield the limits of a module: name, value and text, which is empty for a constant right below another."""
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    source = path.read_text(encoding="utf-8")
    for found in re.finditer(r"(?m)((?:^# .*\n)*)((?:^[A-Z]\w+(?:: \w+)? = .*\n)+)", source):
        text = " ".join(line.removeprefix("# ") for line in found[1].splitlines())
        for name in re.findall(rf"(?m)^({pattern})(?:: \w+)? = ", found[2]):
            value = getattr(importlib.import_module(f"fastflight.{module}"), name)
            if name in LEFT_OUT or not isinstance(value, int | float):
                continue
            if not found[1] and name.startswith("MAX_"):
                raise ValueError(f"{module}.{name} needs a comment above it, for the page on limits")
            yield f"{module}.{name}", formatted(name, value), text.replace("|", "\\|")
            text = ""


def formatted(name: str, value: float) -> str:
    """Return a value in words: `64 KiB`, `30 s`, `4,096`, `2^53`."""
    if "SECONDS" in name and value < 1_000_000:
        return f"{value:g} s"
    if isinstance(value, float):
        return f"{value:g}"
    for size, unit in UNITS if "BYTES" in name else ():
        if value % size == 0:
            return f"{value // size} {unit}"
    power = value.bit_length() - 1
    return f"2^{power}" if value == 1 << power and power >= 32 else f"{value:,}"
