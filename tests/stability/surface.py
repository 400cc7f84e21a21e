"""The public surface of the product as sorted lines of text: what `docs/stability.md` promises.

`SURFACES` maps the name of a snapshot to a function that returns its lines. Answers are observed, in `answers.py`;
everything here is read from the code.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ForwardRef, is_typeddict

from fastflight import client
from fastflight.access.action import Action, EmptyBody
from fastflight.cli import exit_codes
from fastflight.cli.main import COMMANDS, load
from fastflight.errors import FastFlightError
from fastflight.gateway.http_routes import USES, routes
from fastflight.runtime.metrics import DEFINITIONS

ROOT = Path(__file__).parents[2]
# The modules whose names are promised.
PUBLIC = ("fastflight", "fastflight.client", "fastflight.client.options", "fastflight.errors")
# The classes that users construct, besides errors. Others are results.
CONSTRUCTED = ("AsyncFastFlightClient", "Credentials", "Estimate", "FastFlightClient", "Source")
# What makes an object work with `with`, `for`, `await` and other libraries.
PROTOCOLS = ("enter", "exit", "aenter", "aexit", "iter", "next", "aiter", "anext", "await", "len", "arrow_c_stream")


def reference() -> ModuleType:
    """Return `docs/reference_pages.py`, which describes options, keys and types in words."""
    folder = str(ROOT / "docs")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("reference_pages")
    finally:
        sys.path.remove(folder)


def python() -> list[str]:
    """Return the public names with their signatures, as `module.Class.method(argument: type) -> type`."""
    lines: list[str] = []
    for name in PUBLIC:
        module = importlib.import_module(name)
        for public in public_names(module):
            value = getattr(module, public)
            if name == "fastflight" and public in client.__all__:
                lines.append(f"fastflight.{public}: fastflight.client.{public}")
            else:
                lines += described(f"{name}.{public}", value)
    return sorted(set(lines))


def public_names(module: ModuleType) -> list[str]:
    """Return the names in `__all__`, or the classes of a module that has none."""
    classes = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", [name for name in classes if name[0].isupper()]))


def described(path: str, value: Any) -> Iterator[str]:
    if is_typeddict(value):
        yield from (f"{path}[{key!r}]: {as_text(kind)}" for key, kind in value.__annotations__.items())
    elif hasattr(value, "model_fields"):
        kind = f"the request {value.type!r}" if hasattr(value, "type") else "a base of requests"
        yield f"{path}: {kind}"  # its keys are on the wire
    elif inspect.isclass(value):
        constructed = path.rpartition(".")[2] in CONSTRUCTED or issubclass(value, FastFlightError)
        yield f"{path}{signature(value) if constructed else ''}"
        yield from (f"{path} is a {base.__name__}" for base in value.__bases__ if issubclass(base, Exception))
        yield from members(path, value)
    elif inspect.isfunction(value):
        yield f"{path}{signature(value)}"
    elif isinstance(value, str | int | float):
        yield path if path.endswith("__version__") else f"{path} = {value!r}"
    else:
        yield f"{path} = {str(value).replace('typing.', '')}"


def members(path: str, cls: type) -> Iterator[str]:
    """Yield the attributes and methods of a class, also those that it inherits from a class of ours."""
    if is_dataclass(cls):
        yield from (f"{path}.{field.name}: {as_text(field.type)}" for field in fields(cls))
    for owner in cls.__mro__:
        if not owner.__module__.startswith("fastflight"):
            continue
        for name, member in vars(owner).items():
            protocol = name.startswith("__") and name.strip("_") in PROTOCOLS
            if name.startswith("_") and not protocol:
                continue
            if isinstance(member, property):
                yield f"{path}.{name}: {as_text(inspect.signature(member.fget).return_annotation)}"  # type: ignore[arg-type]
            elif inspect.isfunction(member):
                waits = "await " if inspect.iscoroutinefunction(member) else ""
                yield f"{path}.{name}{signature(member).replace('-> ', f'-> {waits}')}"
            elif isinstance(member, classmethod | staticmethod):
                yield f"{path}.{name}{signature(member.__func__)}"


class Text(str):
    """A text whose `repr` is itself: an annotation as it is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def as_text(annotation: Any) -> Text:
    written = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
    return Text(written if isinstance(written, str) else inspect.formatannotation(written))


def signature(value: Callable[..., Any]) -> str:
    """Return the parameters after `self`, and the result. Defaults that are objects of ours are only named."""
    given = inspect.signature(value)
    kept = [
        each.replace(
            annotation=each.annotation if each.annotation is each.empty else as_text(each.annotation),
            default=Text("...") if "object at 0x" in repr(each.default) else each.default,
        )
        for name, each in given.parameters.items()
        if name not in ("self", "cls")
    ]
    result = given.return_annotation
    return str(given.replace(parameters=kept, return_annotation=result if result is given.empty else as_text(result)))


def cli() -> list[str]:
    """Return commands, arguments, options, defaults, exit codes, environment variables and settings."""
    pages = reference()
    lines = [f"exit code {code}: {name}" for name, code in vars(exit_codes).items() if isinstance(code, int)]
    lines += [f"environment variable: {name.strip('`')}" for name in pages.variables()]
    lines += [f"fleet file: {key}: {kind} = {default or None}" for key, kind, default, _ in pages.settings()]
    for name in COMMANDS:
        command = load(name)
        for below, each in getattr(command, "commands", {"": command}).items():
            lines += parameters(f"fastflight {name} {below}".rstrip(), each, pages)
    return sorted(lines)


def parameters(command: str, parsed: Any, pages: ModuleType) -> Iterator[str]:
    yield command
    for each in parsed.params:
        if getattr(each, "hidden", False):
            continue
        if each.opts[0].startswith("-"):
            shown = pages.option(each).replace("`", "").replace("<br>", "; ")
            default = pages.default(each).strip("`")
            yield f"{command}: {shown}{f' = {default}' if default else ''}"
        else:
            yield f"{command}: argument {each.name}: {pages.argument(each)}"


def wire() -> list[str]:
    """Return requests, actions and their keys, error codes, routes and metrics."""
    pages = reference()
    lines = []
    for kind in pages.request_types():
        lines.append(f"request {kind.type}: {', '.join(sorted(pages.CALLS[call] for call in kind.demands))}")
        lines += [f"request {kind.type}: {key}" for key in keys(kind, pages)]
    for action in pages.all_actions():
        lines.append(f"action {action.name}")
        if isinstance(action, Action) and action.body is not EmptyBody:
            lines += [f"action {action.name}: {key}" for key in keys(action.body, pages)]
    lines += [
        f"error {code.strip('`')}: {name.replace('&nbsp;', '').strip('`')}, Flight {flight}, HTTP {http}"
        for code, name, flight, http, _ in pages.error_rows()
    ]
    lines += [f"metric {name}: {each.kind} of {', '.join(each.labels) or 'all'}" for name, each in DEFINITIONS.items()]
    return sorted([*lines, *http()])


def keys(model: Any, pages: ModuleType) -> Iterator[str]:
    for key, schema, required in pages.properties(model):
        kind, default = (text.replace("`", "") for text in (pages.type_of(schema), pages.default_of(schema, required)))
        yield f"{key}: {kind}{', required' if required else f' = {default}' if default else ''}"


def http() -> Iterator[str]:
    """Yield the routes with their query parameters, and the uses of a ticket for a WebSocket."""
    nothing: Any = None
    described: Mapping[str, Mapping[str, Any]] = routes(nothing, nothing, ()).openapi()["paths"]
    for path, methods in described.items():
        for method, operation in methods.items():
            query = sorted(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")
            yield f"route {method.upper()} {path}{f'?{chr(38).join(query)}' if query else ''}"
    yield from (f"ticket for a WebSocket: {use}" for use in USES)


SURFACES: Mapping[str, Callable[[], list[str]]] = {"python": python, "cli": cli, "wire": wire}
