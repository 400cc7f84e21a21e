"""Actions: what can be asked of a server beside rows. A table of them is given to each edge.

Each declares what it demands of who asks; what declares nothing demands an administrator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from fastflight.access.identity import Identity
from fastflight.service.requests import Verb

Result = Mapping[str, Any]


class Body(BaseModel):
    """What all bodies share: unknown keys are refused. An action without a body takes an empty one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EmptyBody(Body):
    """The body of an action that needs none: empty, or `{}`."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action: its wire name, a sentence on it, the model of its JSON body, and the function that serves it.

    `run` is called in the handler's thread with the decoded body; each mapping it gives is one JSON result. `at_once`:
    it waits for nothing, and is carried out however many calls there are.

    `verb` is what it takes on the device that its body names, or on the server where it names none; None: whoever has
    proven who they are may. A `public` one is for all who reach the port. `shown` is what an identity gets of a result:
    None, and it gets nothing of it.
    """

    name: str
    description: str
    body: type[Body]
    run: Callable[[Any], Iterable[Result]]
    at_once: bool = False
    verb: Verb | None = Verb.ADMIN
    public: bool = False
    shown: Callable[[Identity, Result], Result | None] | None = None


@dataclass(frozen=True, slots=True)
class RawAction:
    """One whose body is not JSON: `run` takes it as it is, and who asks, and gives the results' bytes, at once.

    What it demands it looks at by itself.
    """

    name: str
    description: str
    run: Callable[[bytes, Identity], Iterable[bytes]]
