"""Requests as bytes: `decode` a ticket or a command, `encode` a request.

`decode` accepts any bytes and raises nothing but `RequestError` (or its subclass `UnknownName`), which names the key,
its value, the allowed values and the nearest match. `encode` is canonical: equal requests have equal bytes.
`make_request` is the second half of `decode`, for keys that are not encoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from fastflight.errors import RequestError, nearest
from fastflight.service.catalog import Catalog
from fastflight.service.choices import MAX_REQUEST_BYTES
from fastflight.service.requests import DeviceFile, Request

M = TypeVar("M", bound=BaseModel)

# How much of a refused value an error message repeats: enough to recognise it.
MAX_SHOWN_CHARACTERS = 80


def decode(ticket: bytes, catalog: Catalog) -> Request:
    """Return the request in `ticket`. Its type must be in `catalog`."""
    return make_request(parse(ticket, "request"), catalog)


def make_request(keys: Mapping[str, Any], catalog: Catalog, *, strict: bool = True) -> Request:
    """Return the request with these `keys`; `type` must be in `catalog`. Values are of the types that JSON has.

    Unless `strict`, numbers and truth values may also be text, as in the query of a URL.
    """
    content = dict(keys)
    name = content.pop("type", None)
    if not isinstance(name, str):
        raise RequestError("no type is given", where="type", hint=nearest("", catalog.names))
    request: type[Request] = catalog.source(name).request
    return validate(request, content, strict=strict)


def decode_path(path: Sequence[bytes]) -> DeviceFile:
    """Return the request that the path descriptor `[device, path]` means."""
    try:
        parts = [part.decode() for part in path]
    except UnicodeDecodeError:
        raise RequestError("the path is not UTF-8", where="descriptor") from None
    if len(parts) != 2:
        raise RequestError(
            f"a path descriptor has two parts, not {len(parts)}", where="descriptor", hint="Give [device, path]"
        )
    return validate(DeviceFile, {"device": parts[0], "path": parts[1]})


def encode(request: Request) -> bytes:
    """Return the canonical JSON of `request`: a ticket or a command."""
    # Not sorted: keys are in the order of the model, and those of a `schema` in the order of the columns.
    keys = request.model_dump_json(by_alias=True, exclude_none=True)
    return f'{{"type":"{request.type}",{keys[1:]}'.encode()


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in `data`. Raise `RequestError` if it is too long or no JSON object.

    `where` is what the errors call the data.
    """
    if len(data) > MAX_REQUEST_BYTES:
        raise RequestError(f"{len(data)} bytes are too many: {MAX_REQUEST_BYTES} are allowed", where=where)
    hint = 'Send UTF-8 JSON: {"key": value, ...}'
    try:
        content = json.loads(data.decode())
    except UnicodeDecodeError:
        raise RequestError("not UTF-8", where=where, hint=hint) from None
    except json.JSONDecodeError as error:
        raise RequestError(f"not JSON: {error.msg} at character {error.pos}", where=where, hint=hint) from None
    except (ValueError, RecursionError):  # a number with thousands of digits; thousands of nested brackets
        raise RequestError("not JSON that can be read: numbers too long or nested too deep", where=where) from None
    if not isinstance(content, dict):
        raise RequestError(f"a JSON object is needed, not {format_value(content)}", where=where, hint=hint)
    return content


def validate(model: type[M], content: dict[str, Any], *, strict: bool = True) -> M:
    """Return `content` as a `model`. The `RequestError` names the first key that does not fit."""
    keys = _keys(model)
    for key in content:
        if key not in keys:
            raise RequestError("unknown key", where=shortened(key), hint=nearest(key, keys))
    # From JSON, because strict validation of Python objects would not accept a list for a tuple.
    encoded = _as_json(content)
    try:
        return model.model_validate_json(encoded, strict=strict)
    except ValidationError as error:
        raise _refusal(error) from None


def _as_json(content: dict[str, Any]) -> bytes:
    try:
        return to_json(content, inf_nan_mode="constants")
    except PydanticSerializationError as error:
        # A command line with bytes that are not UTF-8 has them as lone surrogates.
        if "UnicodeEncodeError" in str(error):
            what, hint = "not Unicode text", "Write it in UTF-8"
        else:
            what, hint = "nested too deep", ""
        key = next((key for key, value in content.items() if not _is_json(value)), "request")
        raise RequestError(what, where=key, hint=hint) from None


def _is_json(value: Any) -> bool:
    try:
        to_json(value)
    except PydanticSerializationError:
        return False
    return True


@cache
def _keys(model: type[BaseModel]) -> frozenset[str]:
    """Return the keys that requests of this type may have."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def _refusal(error: ValidationError) -> RequestError:
    first = error.errors(include_url=False)[0]
    where = shortened(".".join(str(part) for part in first["loc"]) or "request")
    if first["type"] == "missing":
        return RequestError("this key is needed", where=where)
    if first["type"] == "extra_forbidden":
        return RequestError("unknown key", where=where)
    allowed = _allowed(first.get("ctx", {}).get("expected", ""))
    value = first["input"]
    hint = nearest(value, allowed) if allowed and isinstance(value, str) else first["msg"].removeprefix("Value error, ")
    return RequestError(f"{format_value(value)} is not allowed", where=where, hint=hint)


def _allowed(expected: object) -> Iterable[str]:
    """Return the names in pydantic's text for a literal: `'csv', 'jsonl' or 'raw'`."""
    return str(expected).split("'")[1::2]


def format_value(value: object) -> str:
    """Return `value` as JSON, shortened, for error messages."""
    try:
        return shortened(json.dumps(value, default=str))
    except (ValueError, RecursionError):
        return f"this {type(value).__name__}"


def shortened(text: str) -> str:
    """Return the beginning of `text`, for error messages."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 3] + "..."
