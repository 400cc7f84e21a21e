"""Actions: what can be asked of a server beside rows. A table of them is given to each edge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """What all bodies share: unknown keys are refused. An action without a body takes an empty one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Action:
    """One action: its wire name, a sentence on it, the model of its JSON body, and the function that serves it.

    `run` is called in the handler's thread with the decoded body; each mapping it gives is one JSON result. `at_once`:
    it waits for nothing, and is carried out however many calls there are.
    """

    name: str
    description: str
    body: type[Body]
    run: Callable[[Any], Iterable[Mapping[str, Any]]]
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class RawAction:
    """One whose body is not JSON: `run` takes it as it is and gives the results' bytes, at once."""

    name: str
    description: str
    run: Callable[[bytes], Iterable[bytes]]
