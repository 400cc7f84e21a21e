"""What a live session or a recording must answer, worked out the plain way: all of the text first, then its rows.

`traffic` draws what crosses a line: chunks of random text in both directions, cut at random places, with gaps, lost
lines and requests between them. `expected` says what an answer to it has, in order: rows, and notes of gaps and lost
lines. `seen` brings the batches of a real answer into the same form. Neither knows anything of batches, limits of
batches and flushing: those must not change an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from fastflight.gap import Gap, Why, microseconds, moment
from fastflight.service.source import Noted
from fastflight.sources.session_lines import BEGAN, BEGAN_AT_LINE
from fastflight.transport.chunk_buffer import Chunk, Direction
from fastflight.transport.tap import AFTER_REQUEST, WITHIN_REQUEST

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = {"n": "int64", "x": "double"}
FORMATS = ("bytes", "lines", "jsonl", "csv")
LOST = "the line was lost: it was pulled"
LINE_CUTS = (AFTER_REQUEST, BEGAN_AT_LINE)

# A row of an answer, or a note: `{"gap": (first, last)}`.
Item = dict[str, Any]

_INTEGER = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass
class Expected:
    """An answer without a limit: its items, and how many lines are rejected."""

    items: list[Item] = field(default_factory=list)
    rejected: int = 0

    def up_to(self, limit: int | None) -> list[Item]:
        """Return the items up to the last row that `limit` allows; notes may follow it, or not."""
        if limit is None:
            return self.items
        if limit == 0:
            return []
        places = [index for index, item in enumerate(self.items) if "seq" in item]
        if limit > len(places):
            return self.items
        return self.items[: places[limit - 1] + 1]


@dataclass
class _Run:
    """Traffic without an interruption. `whole`: its first byte is known to begin a line."""

    whole: bool
    chunks: list[Chunk] = field(default_factory=list)


def expected(traffic: Sequence[Chunk | Gap], format: str, *, begins_line: bool) -> Expected:
    """Return the whole answer to `traffic`."""
    answer = Expected()
    run = _Run(begins_line)
    for index, item in enumerate(traffic):
        if isinstance(item, Gap):
            _add_rows(run, format, answer)
            answer.items.append({"gap": (item.first, item.last)})
            run = _Run(False)
            continue
        if item.cut in (AFTER_REQUEST, WITHIN_REQUEST):
            _add_rows(run, format, answer)
            run = _Run(item.cut in LINE_CUTS)
        elif item.cut and index:
            _add_rows(run, format, answer)
            if item.unread is not None and not isinstance(traffic[index - 1], Gap):
                answer.items.append({"gap": (item.seq, item.seq - 1)})
            run = _Run(item.cut in LINE_CUTS)
        run.chunks.append(item)
    _add_rows(run, format, answer)
    return answer


def begins_line(traffic: Sequence[Chunk | Gap], seq: int) -> bool:
    """Return whether the first byte of the device from number `seq` on is known to begin a line."""
    known = False
    for item in traffic:
        if isinstance(item, Gap):
            if item.first >= seq:
                break
            known = False
            continue
        if item.seq > seq or (item.seq == seq and not item.cut):
            break
        if item.cut:
            known = item.cut in LINE_CUTS
        if item.seq == seq:
            break
        if item.direction == "rx":
            known = item.data.endswith(b"\n")
    return known


def part(
    traffic: Sequence[Chunk | Gap],
    *,
    from_seq: int | None = None,
    to_seq: int | None = None,
    from_us: int | None = None,
    to_us: int | None = None,
) -> list[Chunk | Gap]:
    """Return what a range of a recording has of `traffic`, whose times ascend.

    Numbers are included; the times are those of the chunks, `from_us` is included and `to_us` is not. In a range of
    times a gap is included if it overlaps the range. Without times, it is included if it is next to an included row.
    """
    found: list[Chunk | Gap] = []
    for item in traffic:
        if isinstance(item, Gap) and item.rows is None:
            if (from_seq or 0) <= item.first and (to_seq is None or item.first <= to_seq):
                found.append(item)
            continue
        first, last = (item.first, item.last) if isinstance(item, Gap) else (item.seq, item.seq)
        first, last = max(first, from_seq or 0), last if to_seq is None else min(last, to_seq)
        if first <= last:
            found.append(replace(item, first=first, last=last) if isinstance(item, Gap) else item)
    if from_us is None and to_us is None:
        return found
    rows = {
        item.seq
        for item in found
        if isinstance(item, Chunk)
        and (from_us is None or item.time_ns // 1000 >= from_us)
        and (to_us is None or item.time_ns // 1000 < to_us)
    }
    return [
        item
        for item in found
        if (item.seq in rows if isinstance(item, Chunk) else _is_told(item, rows, from_us, to_us))
    ]


def _is_told(gap: Gap, rows: set[int], from_us: int | None, to_us: int | None) -> bool:
    start, stop = microseconds(gap.from_time), microseconds(gap.to_time)
    if start is None or stop is None:
        return bool({gap.first - 1, gap.last + 1} & rows)
    return (to_us is None or start < to_us) and (from_us is None or stop >= from_us)


def with_gaps(items: Sequence[Chunk | Gap]) -> list[Chunk | Gap]:
    """Return traffic as it is recorded: when the line was lost, a gap without numbers is before the next chunk."""
    found: list[Chunk | Gap] = []
    for item in items:
        if isinstance(item, Chunk) and item.unread is not None:
            if found and isinstance(before := found[-1], Chunk):
                times = moment(before.time_ns // 1000), moment(item.time_ns // 1000)
                found.append(Gap(item.seq, item.seq - 1, Why.LINE_LOST, "", *times))
            item = item._replace(unread=None)
        found.append(item)
    return found


def _add_rows(run: _Run, format: str, answer: Expected) -> None:
    if format == "bytes":
        answer.items += [
            {"seq": chunk.seq, "time": _time(chunk), "direction": chunk.direction, "data": chunk.data}
            for chunk in run.chunks
        ]
        return
    received = [chunk for chunk in run.chunks if chunk.direction == "rx"]
    text = b"".join(chunk.data for chunk in received)
    senders = [chunk for chunk in received for _ in chunk.data]
    start = 0
    while start < len(text):
        stop = text.find(b"\n", start)
        whole = stop >= 0 and (start > 0 or run.whole)
        line = text[start : stop if stop >= 0 else len(text)]
        place = {"seq": senders[start].seq, "time": _time(senders[start])}
        start = stop + 1 if stop >= 0 else len(text)
        if format == "lines":
            answer.items.append({**place, "text": line.removesuffix(b"\r").decode("utf-8", "replace")})
        elif line.strip() and line.strip() != (b"n,x" if format == "csv" else b""):
            values = (
                (_csv if format == "csv" else _json)(line.decode("utf-8", "replace").strip("\r")) if whole else None
            )
            if values is None:
                answer.rejected += 1
            else:
                answer.items.append({**place, **values})
        elif line.strip() and not whole:
            answer.rejected += 1


def _csv(line: str) -> dict[str, Any] | None:
    """A cell that does not fit is null. A line of which nothing fits is no row, nor is one with a carriage return."""
    cells = line.split(",")
    if len(cells) != 2 or "\r" in line:
        return None
    n = int(cells[0]) if _INTEGER.fullmatch(cells[0]) else None
    x = float(cells[1]) if _NUMBER.fullmatch(cells[1]) else None
    return None if n is None and x is None and line != "," else {"n": n, "x": x}


def _json(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return {"n": value.get("n"), "x": value.get("x")} if isinstance(value, dict) else None


def _time(chunk: Chunk) -> int | None:
    return None if chunk.waited else chunk.time_ns // 1000


def seen(batches: Iterable[Any]) -> list[Item]:
    """Return batches and notes as items of an answer."""
    items: list[Item] = []
    for batch in batches:
        note = batch.note if isinstance(batch, Noted) else {}
        items += told_items(note, batch.batch if isinstance(batch, Noted) else batch)
    return items


def told_items(note: Mapping[str, Any], batch: Any) -> list[Item]:
    """Return the items of one message: a note stands before the rows of its batch."""
    items: list[Item] = []
    if "gap" in note:
        items.append({"gap": (note["gap"]["first"], note["gap"]["last"])})
    for row in batch.to_pylist():
        time = row["time"]
        items.append({**row, "time": None if time is None else round(time.timestamp() * 1_000_000)})
    return items


def check(got: Sequence[Item], answer: Expected, limit: int | None) -> None:
    """Compare an answer with the expected one. Behind the last row that the limit allows, only notes may follow."""
    wanted = answer.up_to(limit)
    assert list(got) == answer.items[: max(len(wanted), len(got))]
    assert not [item for item in got[len(wanted) :] if "seq" in item]


_LINES: dict[str, st.SearchStrategy[str]] = {
    "csv": st.one_of(
        st.builds(lambda n, x: f"{n},{x / 4!r}", st.integers(-999, 999), st.integers(-99, 99)),
        st.sampled_from(["", "n,x", ",", "7,", ",2.5", "Traceback (most recent call last):", "1,2,3", "5"]),
    ),
    "jsonl": st.one_of(
        st.builds(lambda n, x: json.dumps({"n": n, "x": x / 4}), st.integers(-999, 999), st.integers(-99, 99)),
        st.sampled_from(["", "{}", '{"n":7}', '{"x":2.5}', "Traceback (most recent call last):", "[1]", '{"n":']),
    ),
}
_LINES["lines"] = st.one_of(_LINES["csv"], st.sampled_from(["é", "\ufffd", "  ", "\t"]))
_LINES["bytes"] = _LINES["lines"]


@st.composite
def traffic(draw: st.DrawFn, format: str, *, gaps: bool = True, recorded: bool = False) -> list[Chunk | Gap]:
    """Draw what crosses a line: up to about twelve lines, in chunks of any size.

    `recorded`: recording was stopped and begun again at some places.
    """
    lines = draw(st.lists(_LINES[format], max_size=12))
    ends = draw(st.sampled_from([b"\n", b"\r\n"]))
    data = ends.join(line.encode() for line in lines) + (ends if draw(st.booleans()) else b"")
    edges = sorted({0, len(data), *draw(st.lists(st.integers(0, max(0, len(data))), max_size=8))})
    cuts = st.sampled_from(["", "", "", "", LOST, AFTER_REQUEST, WITHIN_REQUEST, *((BEGAN, BEGAN_AT_LINE) * recorded)])
    items: list[Chunk | Gap] = []
    seq = draw(st.integers(0, 3))

    def add(direction: Direction, content: bytes) -> None:
        nonlocal seq
        at, cut = 1_000_000 * (seq + 1), draw(cuts)
        unread = None if cut in ("", AFTER_REQUEST, WITHIN_REQUEST) else (at - 1000, at)
        items.append(Chunk(seq, at, direction, content, cut, waited=draw(st.booleans()), unread=unread))
        seq += 1

    for start, stop in pairwise(edges):
        if gaps and draw(st.integers(0, 4)) == 0:
            missing = draw(st.integers(1, 3))
            items.append(Gap(seq, seq + missing - 1))
            seq += missing
        if draw(st.integers(0, 4)) == 0:
            add("tx", b"1,1\n")
        add("rx", data[start:stop])
    return items


def as_stored(items: list[Chunk | Gap]) -> list[Chunk | Gap]:
    """Return traffic as a log can hold it: it begins with number 0, and ends with a row."""
    while items and isinstance(items[-1], Gap):
        items = items[:-1]
    first = items[0] if items else None
    if isinstance(first, Gap) and first.first:
        return [replace(first, first=0), *items[1:]]
    return [Gap(0, first.seq - 1), *items] if isinstance(first, Chunk) and first.seq else items


@st.composite
def ranges(draw: st.DrawFn, items: Sequence[Chunk | Gap]) -> dict[str, int]:
    """Draw the bounds of `part`: of numbers or of times, or none."""
    last = items[-1].seq if items and isinstance(items[-1], Chunk) else 0
    first, end = sorted((draw(st.integers(0, last + 1)), draw(st.integers(0, last + 1))))
    kind = draw(st.sampled_from(["", "seq", "us"]))
    bounds = {"from_seq": first, "to_seq": end} if kind == "seq" else {}
    if kind == "us":
        bounds = {"from_us": 1000 * (first + 1), "to_us": 1000 * (end + 1)}
    return {key: value for key, value in bounds.items() if draw(st.booleans())}


def as_times(bounds: Mapping[str, int]) -> dict[str, int | str]:
    """Return the bounds as keys of a `recording` request."""
    return {
        key.replace("us", "time"): (EPOCH + timedelta(microseconds=value)).isoformat() if "us" in key else value
        for key, value in bounds.items()
    }
