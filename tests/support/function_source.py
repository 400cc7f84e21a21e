"""A source made of functions, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastflight.service import DataSource
from fastflight.service.requests import Request


class FunctionSource(DataSource[Any]):
    """The source of `request`, with functions by the names of `DataSource`."""

    def __init__(self, request: type[Request], **functions: Callable[..., Any]) -> None:
        self.request = request
        vars(self).update(functions)
