"""How the lines of a device become rows: as the `rows` of its entry in the fleet file say, or as was recognised."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from fastflight.errors import RequestError
from fastflight.tables import LineParser, TextOptions
from fastflight.tables.recognition import Recognised

# The columns that every row has. A declared column cannot have their names.
OWN_COLUMNS = ("seq", "time")
NO_TABLE = "what it has printed is no table: most lines are neither JSON objects, key=value pairs nor CSV rows"
DECLARE = "Declare rows = { format = ..., schema = ... } in its entry of the fleet file, or read its lines"


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The format of lines, the type of each column, and how CSV cells are written (`text`).

    Lines of format `lines` are declared to be text.
    """

    format: Literal["lines", "jsonl", "csv", "keys"]
    schema: Mapping[str, str] | None = None
    text: TextOptions = TextOptions()

    def parser(self, taken: Collection[str] = ()) -> LineParser:
        """Return a parser of lines. `RequestError` for text, and for a schema that is missing or wrong.

        No column has a name of `OWN_COLUMNS`, whatever is `taken`.
        """
        if self.format == "lines":
            raise RequestError(
                'the lines of this device are text: its entry in the fleet file has rows = { format = "lines" }',
                where="rows",
                hint="Read its lines, or declare their columns there",
            )
        if not self.schema:
            raise RequestError(
                f"{self.format} needs a schema",
                where="schema",
                hint='The columns of live data cannot be inferred: give {"column": "type", ...}',
            )
        for name in OWN_COLUMNS:
            if name in self.schema:
                raise RequestError(
                    "the session's own column has this name", where=f"schema.{name}", hint="Give another"
                )
        return LineParser(self.format, self.schema, self.text)

    def learn(self, lines: Iterable[bytes]) -> Self:
        """Return the same: the types are declared."""
        return self

    def as_json(self) -> dict[str, Any]:
        """Return this as a JSON object."""
        text = {name: getattr(self.text, name) for name in ("delimiter", "decimal", "comment", "null_values")}
        return {"format": self.format, "schema": self.schema, **text}


# How the lines of a device become rows.
Layout: TypeAlias = RowLayout | Recognised
