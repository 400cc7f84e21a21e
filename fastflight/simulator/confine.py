"""Two walls around board code, so that a mistake in it stays on the board.

The first keeps MicroPython's attributes only: `restrict` rewrites code so that attributes by which CPython code climbs
out of its namespace (`__globals__`, `__subclasses__`, `gi_frame`...) raise `AttributeError`, as they do on a board that
does not have them, and `Attributes` gives `getattr` and its kin that do the same.

The second is an audit hook (`Wall`), installed before any board code runs: from then on this process cannot open,
list, change or remove anything outside its folder, start a process or a thread, open a socket or load native code.

This contains mistakes, not a determined attacker: CPython is not a sandbox. Do not run code on a simulated board that
you would not run as yourself.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
import threading
from typing import Any

from fastflight.simulator.files import inside

# Attributes of CPython's objects that MicroPython's do not have and that lead to code, frames or all classes.
HIDDEN = frozenset(
    """
    __base__ __bases__ __builtins__ __closure__ __code__ __context__ __cause__ __defaults__ __func__ __getattribute__
    __getstate__ __globals__ __init_subclass__ __kwdefaults__ __loader__ __mro__ __objclass__ __reduce__ __reduce_ex__
    __self__ __spec__ __subclasses__ __subclasshook__ __traceback__ __wrapped__ __weakref__ __annotations__
    ag_code ag_frame cr_code cr_frame cr_origin f_back f_builtins f_code f_globals f_locals gi_code gi_frame
    gi_yieldfrom mro tb_frame tb_next with_traceback add_note
    """.split()
)
# The name by which rewritten code calls `get`.
GUARDED = "__attribute__"


def missing_attribute(thing: object, name: str) -> Any:
    """Say that `thing` has no attribute `name`, as MicroPython does."""
    if isinstance(thing, type):
        raise AttributeError(f"type object '{thing.__name__}' has no attribute '{name}'")
    raise AttributeError(f"'{type(thing).__name__}' object has no attribute '{name}'")


def is_guarded(name: str) -> bool:
    """Whether `name` is hidden on some things at least. (`__private` is mangled by the compiler: left alone.)"""
    return name in HIDDEN or name == "__dict__" or name[:1] == "_" and name[1:2] != "_"


def is_hidden(thing: object, name: str) -> bool:
    """Whether board code must not see this attribute of this thing.

    Board code has the `__dict__` and the private attributes of its own objects, and not those of the simulator's;
    the `__dict__` of classes and functions would give what `HIDDEN` takes.
    """
    origin = type(thing).__module__
    ours = origin.startswith("fastflight.")
    return name in HIDDEN or is_guarded(name) and (ours or name == "__dict__" and origin == "builtins")


class _Restrict(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and is_guarded(node.attr):
            arguments = [node.value, ast.Constant(node.attr)]
            return ast.copy_location(ast.Call(ast.Name(GUARDED, ast.Load()), arguments, []), node)
        if node.attr in HIDDEN:
            raise SyntaxError("can't assign to attribute")
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        # MicroPython has no match statement, and its class patterns read attributes by name.
        raise SyntaxError("invalid syntax", (None, node.lineno, None, None))


def restrict(source: str | bytes, filename: str, mode: str) -> Any:
    """Compile board code. Raises `SyntaxError` or, for bytes that are not UTF-8, `UnicodeError`.

    `mode` is one of `compile`'s, or `"paste"`: a file whose expressions are shown, as in the REPL's paste mode.
    """
    text = source if isinstance(source, str) else source.decode("utf-8")
    try:
        tree: ast.AST = ast.parse(text, filename, "exec" if mode == "paste" else mode)
    except ValueError as error:
        raise SyntaxError(str(error)) from None
    if mode == "paste" and isinstance(tree, ast.Module):
        tree, mode = ast.Interactive(tree.body), "single"
    return compile(ast.fix_missing_locations(_Restrict().visit(tree)), filename, mode, dont_inherit=True)


def get(thing: object, name: str, *default: Any) -> Any:
    """The board's `getattr`."""
    if is_hidden(thing, name):
        return default[0] if default else missing_attribute(thing, name)
    return builtins.getattr(thing, name, *default)


def has(thing: object, name: str) -> bool:
    """The board's `hasattr`."""
    return not is_hidden(thing, name) and builtins.hasattr(thing, name)


def put(thing: object, name: str, value: Any) -> None:
    """The board's `setattr`."""
    if is_hidden(thing, name) or isinstance(thing, type) and thing.__module__.startswith("fastflight."):
        missing_attribute(thing, name)
    builtins.setattr(thing, name, value)


def names(thing: object) -> list[str]:
    """The board's `dir` of an object."""
    return [name for name in builtins.dir(thing) if not is_hidden(thing, name)]


# Events that touch nothing outside the interpreter. What is not here or below is refused.
HARMLESS = frozenset(
    """
    array.__new__ builtins.id compile exec marshal.load marshal.loads object.__delattr__ object.__getattr__
    object.__setattr__ sys.excepthook sys.unraisablehook time.sleep
    """.split()
)
# Events whose arguments up to the number given here are paths: allowed inside the board's folder.
PATHS = {
    "open": 1,
    "os.listdir": 1,
    "os.scandir": 1,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rmdir": 1,
    "os.rename": 2,
    "os.truncate": 1,
    "os.walk": 1,
}
# The interpreter finds these for itself, on first use.
IMPORTS = ("encodings.", "stringprep", "unicodedata", "_strptime", "_multibytecodec", "_codecs_")


class Wall:
    """The audit hook. Calling it with an event that it refuses raises `PermissionError`.

    Board code runs in the main thread; the events `own` are for the simulator's other threads.
    """

    def __init__(self, root: str, *, own: frozenset[str] = frozenset()) -> None:
        self._root = os.path.realpath(root)
        self._own = own
        self._board = threading.main_thread().ident
        self._library = os.path.dirname(os.path.realpath(os.__file__))

    def install(self) -> None:
        """From now on, and for good: an audit hook cannot be taken away."""
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in HARMLESS:
            return
        if event in PATHS and all(self._allows(event, path, arguments) for path in arguments[: PATHS[event]]):
            return
        if event in self._own and threading.get_ident() != self._board:
            return
        if event == "import" and str(arguments[0]).startswith(IMPORTS):
            return
        raise PermissionError(f"{event} is not for board code")

    def _allows(self, event: str, path: Any, arguments: tuple[Any, ...]) -> bool:
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str):
            return False
        if inside(path, self._root):
            return True
        reading = event != "open" or (arguments[1] or "r") in ("r", "rb") and not _writes(arguments[2])
        return reading and event in ("open", "os.listdir", "os.scandir") and inside(path, self._library)


def _writes(flags: Any) -> bool:
    return bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))
