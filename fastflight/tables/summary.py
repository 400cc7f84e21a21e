"""What a reader has to say about a file besides its rows.

A reader fills one `ReadSummary`. It is sent in the trailer of an answer (`as_dict`), printed as one line (`one_line`),
and kept in the metadata of files. With `on_error="fail"`, the first thing to tell is a `DataError` instead; with
`"lossless"`, the first row or value that would be lost is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fastflight.errors import DataError, quantity

OnError = Literal["skip", "lossless", "fail"]

# Rejected rows kept for the metadata; all are counted. A trailer of 20 examples stays below gRPC's 8 KiB of headers.
MAX_REJECTED_EXAMPLES = 20
# Names and sentences kept in each list of a summary; later ones are not kept.
LISTED_NAMES = 20
# Characters of a value that a reason quotes: enough to recognise it.
MAX_VALUE_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A rejected row: the `offset` of its first byte in the file, and the reason."""

    offset: int
    reason: str


@dataclass(slots=True)
class ReadSummary:
    """Counts and notes about the rows of one answer.

    `rows`: rows in the table. `rejected`: lines that are no rows, with the first `MAX_REJECTED_EXAMPLES` of them, and
    the latest. `null_cells`: for each column, the cells that became null because they do not fit its type, and
    `null_cell_reasons` the first reason. `ignored`: keys without a column. `headers`: headers repeated among the rows.
    `torn`: the last line has no end, so its last value may be cut. `notes`: plain sentences.
    """

    on_error: OnError = "skip"
    rows: int = 0
    rejected: int = 0
    rejected_rows: list[RejectedRow] = field(default_factory=list)
    latest: RejectedRow | None = None
    null_cells: dict[str, int] = field(default_factory=dict)
    null_cell_reasons: dict[str, str] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    headers: int = 0
    torn: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell besides the number of rows."""
        return not self.as_dict().keys() - {"rows"}

    def reject(self, offset: int, reason: str) -> None:
        """Count a line that is no row."""
        self._refuse_loss(reason, f"byte {offset}")
        self.rejected += 1
        self.latest = RejectedRow(offset, reason)
        if len(self.rejected_rows) < MAX_REJECTED_EXAMPLES:
            self.rejected_rows.append(self.latest)

    def add_null_cells(self, column: str, cells: int, reason: str) -> None:
        """Count cells of a column that became null. `reason` is that of the first of them."""
        self._refuse_loss(reason, f"column {column}")
        self.null_cells[column] = self.null_cells.get(column, 0) + cells
        self.null_cell_reasons.setdefault(column, reason)

    def add_misfits(self, column: str, misfits: Sequence[Any], type_: object) -> None:
        """Count the values of a column that became null because they do not fit its type, if there are any."""
        if len(misfits):
            reason = f"column {shorten(column)}: {shorten(misfits[0])} is not {type_}"
            self.add_null_cells(column, len(misfits), reason)

    def ignore(self, name: str) -> None:
        """Count a key that has no column."""
        self._refuse_loss(f"the key {shorten(name)} has no column", "")
        if name in self.ignored or len(self.ignored) < LISTED_NAMES:
            self.ignored[name] = self.ignored.get(name, 0) + 1

    def note(self, sentence: str) -> None:
        """Add a sentence, unless it is there."""
        self._refuse(sentence)
        if sentence not in self.notes and len(self.notes) < LISTED_NAMES:
            self.notes.append(sentence)

    def skip_header(self, offset: int) -> None:
        """Count a header that is repeated among the rows."""
        self._refuse("the header is repeated", f"byte {offset}")
        self.headers += 1

    def mark_torn(self) -> None:
        """Note that the last line has no end."""
        self._refuse("the last line may be torn: it has no line end")
        self.torn = True

    def _refuse_loss(self, reason: str, where: str) -> None:
        if self.on_error != "skip":
            hint = "Mend the file, give a schema that fits, or leave on_error at 'skip'"
            raise DataError(reason, where=where, hint=hint)

    def _refuse(self, what: str, where: str = "") -> None:
        if self.on_error == "fail":
            hint = "Mend the file, say in the request how it is written, or leave on_error at 'skip'"
            raise DataError(what, where=where, hint=hint)

    def as_dict(self, place: Literal["offset", "seq"] = "offset") -> dict[str, Any]:
        """Return the summary as a JSON object, without empty entries. `place` is the key of a rejected row's offset."""
        entries: dict[str, Any] = {
            "rows": self.rows,
            "rejected": self.rejected,
            "rejected_rows": [{place: row.offset, "reason": row.reason} for row in self.rejected_rows],
            "null_cells": dict(sorted(self.null_cells.items())),
            "null_cell_reasons": dict(sorted(self.null_cell_reasons.items())),
            "ignored": dict(self.ignored),
            "headers_skipped": self.headers,
            "torn_last_line": self.torn,
            "notes": list(self.notes),
        }
        return {key: value for key, value in entries.items() if value or key == "rows"}

    def one_line(self) -> str:
        """Return one line of text for people; empty if there is nothing to tell."""
        return one_line(self.as_dict())


def one_line(summary: Mapping[str, Any]) -> str:
    """Return the line of text for people that belongs to `ReadSummary.as_dict()`; empty if there is nothing to tell."""
    parts = []
    if rejected := summary.get("rejected", 0):
        reasons = [row["reason"] for row in summary.get("rejected_rows", ())]
        parts.append(f"{quantity(rejected, 'row')} rejected" + (f" ({reasons[0]})" if reasons else ""))
    if null_cells := summary.get("null_cells"):
        reason = next(iter(summary.get("null_cell_reasons", {}).values()), "")
        columns = ", ".join(f"{count:,} in {name}" for name, count in null_cells.items())
        parts.append(f"values that do not fit became null: {columns}" + (f" ({reason})" if reason else ""))
    if ignored := summary.get("ignored"):
        parts.append(f"keys without a column: {', '.join(ignored)}")
    if headers := summary.get("headers_skipped", 0):
        parts.append(f"{quantity(headers, 'repeated header')} skipped")
    if summary.get("torn_last_line"):
        parts.append("the last line may be torn")
    return "; ".join([*parts, *summary.get("notes", ())])


def combined(summaries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of several files: counts are added up, and lists are joined, up to their limits.

    Takes and returns JSON objects like `ReadSummary.as_dict`. Other keys are left out, and so are the rows.
    """
    whole = ReadSummary()
    examples: list[Any] = []
    for summary in summaries:
        whole.rejected += summary.get("rejected", 0)
        examples += summary.get("rejected_rows", ())
        for column, cells in summary.get("null_cells", {}).items():
            whole.add_null_cells(column, cells, summary.get("null_cell_reasons", {}).get(column, ""))
        for name, count in summary.get("ignored", {}).items():
            whole.ignored[name] = whole.ignored.get(name, 0) + count
        whole.headers += summary.get("headers_skipped", 0)
        whole.torn = whole.torn or summary.get("torn_last_line", False)
        for sentence in summary.get("notes", ()):
            whole.note(sentence)
    entries = {**whole.as_dict(), "rejected_rows": examples[:MAX_REJECTED_EXAMPLES]}
    return {key: value for key, value in entries.items() if value and key != "rows"}


def shorten(value: object) -> str:
    """Return the `repr` of a value for a reason, cut to `MAX_VALUE_CHARACTERS`."""
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 3] + "..."
