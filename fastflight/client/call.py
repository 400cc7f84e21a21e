"""Builds the requests of both clients from the arguments of their methods.

The arguments are checked here, before anything is sent, by the same models with which the server decodes requests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from fastflight.errors import RequestError
from fastflight.service.requests import Request
from fastflight.service.wire import validate

R = TypeVar("R", bound=Request)


def build(request: type[R], **values: Any) -> R:
    """Build a request. Values that are None get their defaults; `as_` is the key `as`, which Python has for itself.

    Raises `RequestError` that names a wrong value.
    """
    return validate(
        request, {key.removesuffix("_"): _as_json(value) for key, value in values.items() if value is not None}
    )


def sql_parameters(values: Sequence[Any] | Mapping[str, Any] | None) -> list[Any] | dict[str, Any] | None:
    """Return the parameters of a query as JSON has them: times, decimals and the like as text.

    A time without a zone is UTC, as it is in the tables of boards. Raises `RequestError` for bytes.
    """
    if values is None or not values:
        return None
    if isinstance(values, Mapping):
        return {name: _parameter(value) for name, value in values.items()}
    return [_parameter(value) for value in values]


def _parameter(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        raise RequestError(
            "bytes are not a value of SQL here", where="parameters", hint="Compare the hex() of a column"
        )
    is_plain = value is None or isinstance(value, bool | int | str)
    return value if is_plain or (isinstance(value, float) and math.isfinite(value)) else str(value)


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return _with_zone(value).isoformat()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _with_zone(time: datetime) -> datetime:
    """Return the time with its zone. A time without a zone is local time.

    Raises `RequestError` for a local time that the system cannot convert.
    """
    try:
        return time if time.tzinfo is not None else time.astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise RequestError("this local time cannot be converted", where=str(time), hint="Give its time zone") from error
