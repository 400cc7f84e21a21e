"""The pages of the site and README, as blocks that can be run.

A block is a fenced piece of a page. A comment in front of it says how it is meant:

- `<!-- varies -->`: its output is not the same twice;
- `<!-- main.py -->`: it is a program for the board;
- `<!-- not run -->`: it needs what the tests do not have, which the page says; it is only compiled;
- `<!-- no server -->`: its commands use the only board that is plugged in.

Comments anywhere in a page set up its server: `<!-- devices: lab-1 lab-2 -->` names simulated boards, and
`<!-- recorded -->` records them.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
SERVER, HTTP = "grpc://127.0.0.1:8815", "http://127.0.0.1:8000"
WRITTEN = sorted(path for folder in ("tutorial", "how-to") for path in (DOCS / folder).glob("*.md"))
# Pages whose examples need no more than a server. Other pages have tests of their own in this folder.
SINGLE = ("fleet.md", "gateway.md", "observability.md", "recordings.md", "sessions.md", "sql/python.md", "transfers.md")
RUN = [README, *WRITTEN, *(DOCS / name for name in SINGLE)]
ALL = [README, *sorted(path for path in DOCS.rglob("*.md") if path.parent.name not in ("decisions", "results"))]

BLOCK = re.compile(r"^(?:<!-- ([^>]*) -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def generator(name: str) -> ModuleType:
    """Return a module of docs/ that makes parts of pages. MkDocs has the folder on its path; tests do not."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Block:
    """`printed` is the output that the page shows for a block of Python; None if it shows none."""

    language: str
    content: str
    comment: str
    printed: str | None = None


def blocks(text: str) -> Iterator[Block]:
    found = list(BLOCK.finditer(text))
    for place, this in enumerate(found):
        after = found[place + 1] if place + 1 < len(found) else None
        printed = None
        if after is not None and after[2] in ("", "text") and not text[this.end() : after.start()].strip():
            printed = after[3]
        yield Block(this[2], this[3], this[1] or "", printed)


def devices(text: str) -> list[str]:
    named = re.search(r"<!-- devices: (.*?) -->", text)
    return named[1].split() if named else ["demo"]


def lines(block: str) -> list[str]:
    """Return the commands of a shell block."""
    return block.replace("\\\n", " ").splitlines()


def commands(block: str) -> Iterator[list[str]]:
    """Yield the words of each command of `fastflight` in a shell block, also of one that another command runs."""
    for line in lines(block):
        words = shlex.split(line, comments=True)
        if "fastflight" in words:
            yield words[words.index("fastflight") + 1 :]
