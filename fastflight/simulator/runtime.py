"""The board's interpreter: namespace, modules, imports, and printing of exceptions.

A `Runtime` exists from one reset to the next. CPython runs the board code, in a namespace with MicroPython's builtins,
modules (`modules/`) and files. Features that only MicroPython has (native code, const folding, 31-bit integers) are not
modelled. Of the heap, only `gc.mem_free()` is modelled, and `MemoryError` for a single read that is larger than that.
"""

from __future__ import annotations

import ast
import builtins
import sys
import time
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fastflight.simulator.console import TextIn, TextOut
from fastflight.simulator.modules import build
from fastflight.simulator.oserror import BoardOSError
from fastflight.simulator.timers import Timers
from fastflight.simulator.trace import PREFIX, format_exception
from fastflight.simulator.uart import OWN_FILES, BoardReset, LineClosed, Uart
from fastflight.simulator.values import represent, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastflight.simulator.mounts import MountingFiles

VERSION = (1, 27, 0)
BANNER = "MicroPython v{}.{}.{} (sim) on 2026-01-01; Simulated board with fastflight\r\n".format(*VERSION)
HELP = "Simulated board: code runs on the host, in a namespace like MicroPython's.\nSee sys, os, machine, time.\n"
# `sys.platform`.
PLATFORM = "simulator"
# Bytes of the heap that are in use before any code runs.
HEAP_IN_USE = 8_000

# After a key at the prompt, the program that the board brings prints nothing for so long.
TYPING_SECONDS = 30.0

BUILTINS = """
    ArithmeticError AssertionError AttributeError BaseException Ellipsis EOFError Exception GeneratorExit ImportError
    IndentationError IndexError KeyError KeyboardInterrupt LookupError MemoryError NameError NotImplemented
    NotImplementedError OverflowError RuntimeError StopAsyncIteration StopIteration SyntaxError SystemExit TypeError
    UnicodeError ValueError ZeroDivisionError abs all any bin bool bytearray bytes callable chr classmethod complex
    delattr dict divmod enumerate filter float frozenset getattr hasattr hash hex id int isinstance issubclass iter
    len list map max memoryview min next object oct ord pow property range reversed round set setattr slice
    sorted staticmethod str sum super tuple type zip True False None __build_class__
""".split()


def compile_code(source: str | bytes, filename: str, mode: str) -> Any:
    """Compile board code. Raises `SyntaxError` or, for bytes that are not UTF-8, `UnicodeError`.

    `mode` is one of `compile`'s modes, or `"paste"`: several statements whose expressions are printed, as in the REPL's
    paste mode.
    """
    text = source if isinstance(source, str) else source.decode("utf-8")
    try:
        if mode == "paste":
            return compile(ast.Interactive(ast.parse(text, filename).body), filename, "single", dont_inherit=True)
        return compile(text, filename, mode, dont_inherit=True)
    except ValueError as error:
        raise SyntaxError(str(error)) from None


class Outcome(Enum):
    """How a piece of code ended."""

    DONE = "done"
    RAISED = "raised"
    SOFT_RESET = "soft reset"


class Names:
    """The module `__main__`: its attributes are the names of a namespace."""


class Builtins:
    """The module `builtins`, as MicroPython has it: a program can replace a name in it, and still reads the real one.

    What a program assigns is found wherever a name is looked up. The attributes and `__dict__` stay the real builtins.
    """

    __slots__ = ("_names", "_real")
    _names: dict[str, Any]
    _real: dict[str, Any]

    def __init__(self, names: dict[str, Any]) -> None:
        """`names`: where names are looked up that a program has not assigned itself."""
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_real", names | {"__builtins__": names, "__name__": "builtins"})

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return self._real

    def __getattr__(self, name: str) -> Any:
        if name in self._real:
            return self._real[name]
        raise AttributeError(f"'module' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        self._names[name] = value

    def __delattr__(self, name: str) -> None:
        if name in self._real:
            self._names[name] = self._real[name]
        else:
            del self._names[name]


class Runtime:
    """The interpreter between two resets.

    `constants` become the board's module `simulator`. `without` names modules and attributes to leave out. `platform`
    is the board's `sys.platform`, from which hosts infer the size of the receive ring.
    """

    def __init__(
        self,
        uart: Uart,
        files: MountingFiles,
        *,
        heap: int = HEAP_IN_USE + 120_000,
        without: frozenset[str] = frozenset(),
        constants: Mapping[str, Any] | None = None,
        platform: str = PLATFORM,
        soft_timers: bool = False,
    ) -> None:
        self.uart = uart
        self.files = files
        self.heap = heap
        self.constants = dict(constants or {})
        self.platform = platform
        self.stdin = TextIn(uart, self.mem_free)
        self.stdout = TextOut(uart)
        self.timers = Timers(self.report)
        # When a key was last typed at the prompt.
        self.typed_at = -TYPING_SECONDS
        if soft_timers:
            uart.run_timers = self.timers.run_due
        files.reset()
        self.path = ["", "/lib"]
        self.loaded: dict[str, Any] = {}
        self.modules = build(self)
        for name in without:
            module, _, attribute = name.partition(".")
            if not attribute:
                self.modules.pop(module, None)
                self.modules.pop("u" + module, None)
            elif module in self.modules:
                vars(self.modules[module]).pop(attribute, None)
        self.builtins = self._builtins()
        self.modules["builtins"] = Builtins(self.builtins)
        self.globals: dict[str, Any] = {"__name__": "__main__", "__builtins__": self.builtins}

    def execute(self, source: str | bytes, filename: str = "<stdin>", mode: str = "exec") -> BaseException | None:
        """Run code that Ctrl-C can interrupt. Return the exception that it raised, or None."""
        try:
            try:
                code = compile_code(source, PREFIX + filename, mode)
                sys.displayhook = self._show
                if mode == "exec":
                    self.globals["__file__"] = filename
                self.uart.arm()
                exec(code, self.globals)  # noqa: S102  # what a board is for; see `sandbox`
            finally:
                self.uart.disarm()
            self.uart.checkpoint()
        except (LineClosed, BoardReset):
            raise
        except BaseException as error:
            self.uart.disarm()
            self.uart.checkpoint()
            return error
        return None

    def finish(self, error: BaseException | None) -> Outcome:
        """Print the exception that `execute` returned, as a board does. Return how the code ended."""
        if error is None:
            return Outcome.DONE
        if isinstance(error, SystemExit):
            return Outcome.SOFT_RESET
        self.report(error)
        return Outcome.RAISED

    def run_file(self, name: str) -> Outcome:
        """Run a file of the board, if it exists."""
        try:
            source = self._source(name)
        except BoardOSError:
            return Outcome.DONE
        return self.finish(self.execute(source, name))

    def report(self, error: BaseException) -> None:
        self.stdout.write(format_exception(error))

    def mem_free(self) -> int:
        """Return the free heap in bytes, estimated from the strings and bytes that global names refer to."""
        named = [value for name, value in self.globals.items() if not name.startswith("__")]
        held = sum(sys.getsizeof(value) for value in named if isinstance(value, (bytes, bytearray, str)))
        return max(0, self.heap - HEAP_IN_USE - held)

    def somebody_types(self) -> bool:
        """Whether a key was typed at the prompt in the last `TYPING_SECONDS`."""
        return time.monotonic() - self.typed_at < TYPING_SECONDS

    def idle_until_input(self) -> None:
        """Wait for a byte at the friendly prompt and run timers meanwhile. Exceptions of callbacks are printed."""
        while True:
            try:
                due = self.timers.run_due()
            except (LineClosed, BoardReset):
                raise
            except BaseException as error:
                self.report(error)
                continue
            self.uart.disarm()
            if self.uart.readable(due):
                return

    def sleep(self, seconds: float) -> None:
        """Implement `time.sleep`: run timers meanwhile. Only an exception ends it early."""
        end = time.monotonic() + seconds
        while True:
            due = self.timers.run_due()
            self.uart.sleep_until(end if due is None else min(end, due))
            if time.monotonic() >= end:
                return

    def _source(self, path: str) -> bytes:
        return self.files.source(path)

    def _show(self, value: object) -> None:
        if value is not None:
            self.builtins["_"] = value
            self.stdout.write(represent(value) + "\n")

    def _builtins(self) -> dict[str, Any]:
        names = {name: getattr(builtins, name) for name in BUILTINS}
        names |= {
            "OSError": BoardOSError,
            "__import__": self.import_module,
            "dir": lambda *thing: dir(thing[0]) if thing else sorted(self.globals),
            "open": self.files.open,
            "print": self._print,
            "repr": represent,
            "input": self._input,
            "help": lambda *thing: self._print(HELP, end=""),
            "globals": lambda: self.globals,
            "locals": lambda: self.globals,
            "eval": self._eval,
            "exec": self._exec,
            "compile": lambda source, filename, mode: compile_code(source, PREFIX + filename, mode),
            "const": lambda value: value,
        }
        return names

    def _print(self, *values: object, sep: str = " ", end: str = "\n", file: Any = None) -> None:
        (file or self.stdout).write(sep.join(map(text, values)) + end)

    def _input(self, prompt: str = "") -> str:
        self.stdout.write(prompt)
        line = self.stdin.readline().rstrip("\n")
        self.stdout.write(line + "\n")
        return line

    def _eval(self, source: Any, scope: Any = None, local: Any = None) -> Any:
        code = compile_code(source.strip(), PREFIX + "<string>", "eval") if isinstance(source, str) else source
        return eval(code, self._scope(scope), local)  # noqa: S307  # what a board is for; see `sandbox`

    def _exec(self, source: Any, scope: Any = None, local: Any = None) -> None:
        code = compile_code(source, PREFIX + "<string>", "exec") if isinstance(source, (str, bytes)) else source
        exec(code, self._scope(scope), local)  # noqa: S102  # what a board is for; see `sandbox`

    def _scope(self, scope: dict[str, Any] | None) -> dict[str, Any]:
        scope = self.globals if scope is None else scope
        scope.setdefault("__builtins__", self.builtins)
        return scope

    def import_module(self, name: str, scope: Any = None, local: Any = None, wanted: Any = (), level: int = 0) -> Any:
        """Implement the board's `__import__`: built-in modules first, then `.py` files and packages on `sys.path`."""
        if level:
            parts = str((scope or {}).get("__package__") or "").split(".")
            parts = parts[: len(parts) - level + 1]
            name = ".".join([*parts, name]) if name else ".".join(parts)
        module = parent = None
        done = ""
        for part in name.split("."):
            done = f"{done}.{part}" if done else part
            module = self._load(done, parent)
            if parent is not None:
                setattr(parent, part, module)
            parent = module
        for attribute in wanted or ():
            if attribute != "*" and not hasattr(module, attribute) and hasattr(module, "__path__"):
                setattr(module, attribute, self._load(f"{name}.{attribute}", module))
        return module if wanted else self._load(name.partition(".")[0], None)

    def _load(self, name: str, parent: Any) -> Any:
        if name in self.loaded:
            return self.loaded[name]
        if name == "__main__":
            module = Names()
            module.__dict__ = self.globals
            return module
        if name in self.modules:
            self.loaded[name] = self.modules[name]
            return self.modules[name]
        leaf = name.rpartition(".")[2]
        for folder in self.path if parent is None else getattr(parent, "__path__", []):
            base = f"{folder}/{leaf}" if folder else leaf
            for path, package in ((f"{base}/__init__.py", True), (f"{base}.py", False)):
                try:
                    source = self._source(path)
                except BoardOSError:
                    continue
                return self._run_module(name, path, base if package else "", source)
        raise ImportError(f"no module named '{name}'")

    def _run_module(self, name: str, path: str, package: str, source: bytes) -> ModuleType:
        module = ModuleType(name)
        vars(module).clear()
        vars(module).update(__name__=name, __file__=path, __builtins__=self.builtins)
        vars(module)["__package__"] = name if package else name.rpartition(".")[0]
        if package:
            vars(module)["__path__"] = [package]
        self.loaded[name] = module
        try:
            exec(compile_code(source, PREFIX + path, "exec"), vars(module))  # noqa: S102  # what a board is for; see `sandbox`
        except BaseException:
            del self.loaded[name]
            raise
        return module


# The signal handler must not raise in this file: an interrupt between the steps of `execute` would escape it.
OWN_FILES.add(__file__)
