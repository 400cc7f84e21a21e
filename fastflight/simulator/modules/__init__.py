"""The board's modules, built for each `Runtime`.

A module holds only attributes that MicroPython's module has. `build` returns the modules by name; most are also there
under their old name with a leading `u`.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from fastflight.simulator.modules import data, system
from fastflight.simulator.modules.loop import Loop

if TYPE_CHECKING:
    from fastflight.simulator.runtime import Runtime

# Modules that never had a name with a leading `u` in MicroPython.
ONE_NAME = frozenset({"gc", "machine", "micropython", "simulator", "deflate", "math"})


def build(runtime: Runtime) -> dict[str, Any]:
    """Build the module objects, by name."""
    contents = system.contents(runtime) | data.contents(runtime) | {"asyncio": Loop(runtime).contents()}
    modules: dict[str, Any] = {}
    for name, attributes in contents.items():
        module = ModuleType(name)
        vars(module).clear()
        vars(module).update(__name__=name, **attributes)
        modules[name] = module
        if name not in ONE_NAME:
            modules["u" + name] = module
    return modules
