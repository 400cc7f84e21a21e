"""Checks the types of the arguments of public methods, before anything is sent or opened.

`@checks_arguments` on a class reads the annotations of its public methods. It checks those of plain types, such as
`str`, `bool | None` and `str | Path`, and the options of a verb (`fastflight.client.options`). Other annotations, such
as those of rows and formats, are left to the code that uses the value.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import os
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, ForwardRef, TypeVar

from fastflight.client.credentials import Credentials
from fastflight.client.options import OPTIONS
from fastflight.errors import RequestError
from fastflight.service.requests import Request

C = TypeVar("C", bound=type)
Check = Callable[[Any], bool]


def _is_number(kind: type) -> Check:
    # A truth value is an integer to Python, and hardly ever what was meant.
    return lambda value: isinstance(value, kind) and not isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    is_collection = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    return is_collection and all(isinstance(each, str) for each in value)


# For each annotation what it is called in errors, and whether a value fits.
CHECKS: Mapping[str, tuple[str, Check]] = {
    "None": ("None", lambda value: value is None),
    "str": ("a str", lambda value: isinstance(value, str)),
    "bytes": ("bytes", lambda value: isinstance(value, bytes | bytearray | memoryview)),
    "bool": ("a bool", lambda value: isinstance(value, bool)),
    "int": ("an int", _is_number(numbers.Integral)),
    "float": ("a number", _is_number(numbers.Real)),
    "Path": ("a path", lambda value: isinstance(value, os.PathLike)),
    "datetime": ("a datetime", lambda value: isinstance(value, datetime)),
    "Sequence[str]": ("a list of str", _is_texts),
    "Mapping[str, str]": ("a dict", lambda value: isinstance(value, Mapping)),
    "Mapping[str, Any]": ("a dict", lambda value: isinstance(value, Mapping)),
    "Request": ("a request of fastflight.service.requests", lambda value: isinstance(value, Request)),
    "Credentials": ("Credentials", lambda value: isinstance(value, Credentials)),
    **dict.fromkeys(("Report", "TreeReport", "Resuming"), ("a function", callable)),
}


def checks_arguments(cls: C) -> C:
    """Have each public method of a class, and `__init__`, raise `RequestError` for an argument of a wrong type."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _checked(method))
    return cls


def checks_of(method: Callable[..., Any]) -> dict[str, tuple[str, Check]]:
    """Return the checks of the arguments and the options of a method, by their names."""
    found = {}
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found[name] = _check(parameter.annotation)
            continue
        for option, annotation in OPTIONS[method.__name__].__annotations__.items():
            text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
            found[option] = _check(f"{text} | None")  # None means the default
    return {name: check for name, check in found.items() if check is not None}


def _check(annotation: Any) -> tuple[str, Check] | None:
    parts = annotation.split(" | ") if isinstance(annotation, str) else []
    if not parts or not all(part in CHECKS for part in parts):
        return None
    names, checks = zip(*(CHECKS[part] for part in dict.fromkeys(parts)), strict=True)
    return " or ".join(names), lambda value: any(check(value) for check in checks)


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    signature, checks = inspect.signature(method), checks_of(method)
    options = next((name for name, each in signature.parameters.items() if each.kind is each.VAR_KEYWORD), "")

    def check(args: tuple[Any, ...], keys: dict[str, Any]) -> None:
        try:
            values = signature.bind(*args, **keys).arguments
        except TypeError:
            return  # the call itself says it better
        values |= values.pop(options, {})
        for name in checks.keys() & values.keys():
            names, fits = checks[name]
            if not fits(values[name]):
                order = ", ".join(each for each in list(signature.parameters)[1:] if each != options)
                raise RequestError(
                    f"must be {names}, not {type(values[name]).__name__}",
                    where=name,
                    hint=f"The arguments are {method.__name__}({order})",
                )

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call_async(*args: Any, **keys: Any) -> Any:
            check(args, keys)
            return await method(*args, **keys)

        return call_async

    @functools.wraps(method)
    def call(*args: Any, **keys: Any) -> Any:
        check(args, keys)
        return method(*args, **keys)

    return call
