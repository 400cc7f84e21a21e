"""Which lines of the modules that a target is for are reached by what its campaigns have kept.

Lines of functions alone: those of a module and of a class run when it is imported. What other threads run counts too.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.campaigns.fuzz.campaign import BUILD
from tests.campaigns.fuzz.target import load


@dataclass(frozen=True, slots=True)
class Reach:
    """Of one module: how many lines there are, and those that were not reached."""

    module: str
    lines: int
    missed: tuple[int, ...]

    @property
    def part(self) -> float:
        return 1 - len(self.missed) / max(self.lines, 1)


def reach(name: str, folder: Path = BUILD) -> list[Reach]:
    """The target over its seeds, its past and its corpus."""
    target = load(name)
    files = {str(importlib.import_module(module).__file__): module for module in target.modules}
    reached: dict[str, set[int]] = {file: set() for file in files}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        found = reached.get(frame.f_code.co_filename)
        if found is None:
            return None
        found.add(frame.f_lineno)
        return trace

    corpus = sorted((folder / name / "corpus").glob("*"))
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        with target.running():
            for data in (*target.seeds, *target.past, *(path.read_bytes() for path in corpus)):
                target.run(data)
    finally:
        sys.settrace(None)
        threading.settrace(None)
    return [_reach(module, Path(file), reached[file]) for file, module in files.items()]


def _reach(module: str, file: Path, reached: set[int]) -> Reach:
    lines = {line for code in _functions(compile(file.read_bytes(), str(file), "exec")) for line in _lines(code)}
    return Reach(module, len(lines), tuple(sorted(lines - reached)))


def _functions(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & 0x02:  # its names are local, as those of a class are not
                yield inner
            yield from _functions(inner)


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}


def table(found: dict[str, list[Reach]]) -> str:
    """As Markdown, with the lines that were not reached."""
    rows = [
        f"| {name} | {each.module} | {each.lines} | {each.part:.0%} | {' '.join(map(str, each.missed))} |"
        for name, modules in found.items()
        for each in modules
    ]
    return "\n".join(["| target | module | lines | reached | not reached |", "|---|---|---|---|---|", *rows])
