"""The board's modules, built afresh for each life of a `Runtime`.

A module holds what MicroPython's has and nothing else. `build` gives them by name, each also under its old name with
a leading `u`.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from fastflight.simulator.modules import data, system

if TYPE_CHECKING:
    from fastflight.simulator.runtime import Runtime

# Modules that MicroPython never had under another name.
ONE_NAME = frozenset({"gc", "machine", "micropython", "simulator", "deflate", "math"})


def build(runtime: Runtime) -> dict[str, Any]:
    """Module objects by name."""
    contents = system.contents(runtime) | data.contents(runtime)
    modules: dict[str, Any] = {}
    for name, attributes in contents.items():
        module = ModuleType(name)
        vars(module).clear()
        vars(module).update(__name__=name, **attributes)
        modules[name] = module
        if name not in ONE_NAME:
            modules["u" + name] = module
    return modules
