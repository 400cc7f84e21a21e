"""Finds the user's own sources: by `--source MODULE:NAME`, and by the entry points of installed packages.

All errors are `RequestError`, which says what was looked for, what is wrong with it, and what to do next.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from fastflight.errors import RequestError, nearest
from fastflight.service import DataSource, requests
from fastflight.service.own_source import Source
from fastflight.service.requests import Request

GROUP = "fastflight.sources"
EXAMPLE = "As in my_package.sales:SALES"


def load_sources(names: Iterable[str]) -> tuple[DataSource[Any], ...]:
    """Return the sources of the entry points of `GROUP`, and those that `names` name, as MODULE:NAME."""
    installed = [(f"entry point {each.name}{_of(each)}", _installed(each)) for each in entry_points(group=GROUP)]
    return sources_of([*installed, *((f"--source {name}", _named(name)) for name in names)])


def sources_of(given: Iterable[tuple[str, Any]]) -> tuple[DataSource[Any], ...]:
    """Return the sources of what is `given`, each with the place that errors name. Each request type has one source."""
    taken = {kind.type: "fastflight itself" for kind in _built_in()}
    found: dict[int, DataSource[Any]] = {}
    for where, thing in given:
        if id(thing) in found:
            continue
        source = _guarded(where, "making the source", partial(Source.of, thing))
        if source.request.type in taken:
            raise RequestError(
                f"the request type {source.request.type!r} is taken by {taken[source.request.type]}",
                where=where,
                hint="Give the class of the requests another `type`",
            )
        taken[source.request.type] = where
        found[id(thing)] = source
    return tuple(found.values())


def _named(name: str) -> Any:
    """Import MODULE:NAME; modules in the working directory are found as well."""
    where = f"--source {name}"
    module, colon, attribute = name.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise RequestError("not MODULE:NAME", where=where, hint=EXAMPLE)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        imported = _guarded(where, f"importing {module}", lambda: importlib.import_module(module))
    except RequestError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and f"{module}.".startswith(f"{missing.name}."):
            raise RequestError(
                f"there is no module {missing.name!r}",
                where=where,
                hint=f"Start the server in the folder that has it (this one is {folder}), or install its package",
            ) from missing
        raise
    try:
        return getattr(imported, attribute)
    except AttributeError:
        sources = [key for key, value in vars(imported).items() if isinstance(value, DataSource)]
        public = [key for key in vars(imported) if not key.startswith("_")]
        hint = nearest(attribute, sources or public)
        raise RequestError(f"{module} has no {attribute!r}", where=where, hint=hint) from None


def _installed(point: EntryPoint) -> Any:
    return _guarded(f"entry point {point.name}{_of(point)}", f"importing {point.value}", point.load)


def _of(point: EntryPoint) -> str:
    return "" if point.dist is None else f" of {point.dist.name}"


def _guarded(where: str, doing: str, call: Callable[[], Any]) -> Any:
    """Call the user's code. The error names the exception, and the line that raised it."""
    try:
        return call()
    except RequestError as error:
        inner = f"{error.where}: {error.what}" if error.where else error.what
        raise RequestError(inner, where=where, hint=error.hint) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raised = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        hint = f"Correct it at {last.filename}, line {last.lineno}"
        if isinstance(error, SyntaxError):
            hint = f"Correct it at {error.filename}, line {error.lineno}"
        elif isinstance(error, ModuleNotFoundError):
            hint = f"Install the package that has {error.name}"
        raise RequestError(f"{doing} failed: {raised}", where=where, hint=hint) from error


def _built_in() -> list[type[Request]]:
    kinds = (value for value in vars(requests).values() if isinstance(value, type) and issubclass(value, Request))
    return [kind for kind in kinds if hasattr(kind, "type")]
