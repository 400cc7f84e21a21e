"""What a target is, and where they are: a module of `tests.campaigns.fuzz.targets` each, whose `TARGET` it is."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

TARGETS = Path(__file__).parent / "targets"


@dataclass(frozen=True, slots=True)
class Target:
    """`run` raises when something does not hold of the bytes that it is given.

    `seeds` are what the parser meets on a good day; mutation begins there. `past` are inputs that once broke it.
    """

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    past: tuple[bytes, ...] = ()
    # Those that it is for, of which `--reach` says how much is reached.
    modules: tuple[str, ...] = ()
    # Longer inputs are slower and seldom say more; a limit of the parser's own is worth reaching.
    max_bytes: int = 128
    # An execution that takes longer hangs.
    seconds: int = 5
    # Of the whole process, with what it imports.
    max_megabytes: int = 1024
    # Around all executions: what the target needs to be running.
    running: Callable[[], AbstractContextManager[None]] = nullcontext


def names() -> list[str]:
    """All targets."""
    return sorted(module.name for module in pkgutil.iter_modules([str(TARGETS)]))


def load(name: str) -> Target:
    """The target of that name; what it tests is imported now."""
    target = importlib.import_module(f"tests.campaigns.fuzz.targets.{name}").TARGET
    assert isinstance(target, Target)
    return target
