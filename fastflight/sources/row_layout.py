"""How the lines of a device become rows, as the `rows` of its entry in the fleet file say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from fastflight.errors import RequestError
from fastflight.tables import LineParser, TextOptions

# The columns that every row has. A declared column cannot have their names.
OWN_COLUMNS = ("seq", "time")


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The format of lines, the type of each column, and how CSV cells are written (`text`)."""

    format: Literal["jsonl", "csv"]
    schema: Mapping[str, str] | None
    text: TextOptions = TextOptions()

    def parser(self) -> LineParser:
        """Return a parser of lines. `RequestError` for a schema that is missing or wrong."""
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
