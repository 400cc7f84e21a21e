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
    """Values by key; without any, all is chosen."""

    wanted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Selection:
        """From `key=value,value`; `RequestError` for what is not written so. The same key again adds values."""
        wanted: dict[str, frozenset[str]] = {}
        for text in texts:
            key, equals, values = text.partition("=")
            if not equals or not key or not values:
                raise RequestError(f"{text!r} is not KEY=VALUE or KEY=VALUE,VALUE", where="--only")
            wanted[key] = wanted.get(key, frozenset()) | frozenset(values.split(","))
        return cls(wanted)

    def of(self, items: Sequence[Item], labels: Iterable[Labels]) -> list[Item]:
        """Those of `items` whose labels are wanted. `RequestError` for a key or a value that none of them has."""
        known = list(labels)
        for key, values in self.wanted.items():
            there = sorted({label[key] for label in known if key in label})
            if not there:
                keys = ", ".join(sorted({name for label in known for name in label}))
                raise RequestError(f"no cell has {key!r}", where="--only", hint=f"Keys of this suite: {keys}")
            if strange := sorted(values - set(there)):
                raise RequestError(
                    f"no cell has {key}={strange[0]}", where="--only", hint=f"There are: {', '.join(there)}"
                )
        return [
            item
            for item, label in zip(items, known, strict=True)
            if all(label.get(key) in values for key, values in self.wanted.items())
        ]
