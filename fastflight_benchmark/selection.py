"""Chooses the cells of a suite that are measured: `--only rows=40,1000 --only clients=1`.

Each cell has labels. A cell is chosen if, for every given key, its label is one of the given values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fastflight.errors import RequestError

Labels = Mapping[str, str]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Selection:
    """The wanted values by key. An empty selection chooses everything."""

    wanted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Selection:
        """Parse `key=value,value`. A repeated key adds values. Raise `RequestError` for any other text."""
        wanted: dict[str, frozenset[str]] = {}
        for text in texts:
            key, equals, values = text.partition("=")
            if not equals or not key or not values:
                raise RequestError(f"{text!r} is not KEY=VALUE or KEY=VALUE,VALUE", where="--only")
            wanted[key] = wanted.get(key, frozenset()) | frozenset(values.split(","))
        return cls(wanted)

    def of(self, items: Sequence[Item], labels: Iterable[Labels]) -> list[Item]:
        """Return the `items` with wanted labels. Raise `RequestError` for a key or a value that no item has."""
        known = list(labels)
        for key, values in self.wanted.items():
            values_of_key = sorted({label[key] for label in known if key in label})
            if not values_of_key:
                keys = ", ".join(sorted({name for label in known for name in label}))
                raise RequestError(f"no cell has {key!r}", where="--only", hint=f"Keys of this suite: {keys}")
            if unknown := sorted(values - set(values_of_key)):
                raise RequestError(
                    f"no cell has {key}={unknown[0]}", where="--only", hint=f"Use one of: {', '.join(values_of_key)}"
                )
        return [
            item
            for item, label in zip(items, known, strict=True)
            if all(label.get(key) in values for key, values in self.wanted.items())
        ]
