"""Actions: the calls of a server that are neither a read, a write nor an exchange of rows, such as `health`.

An `Action` declares its name, the model of its body, and the verb that its caller needs (by default `admin`). An edge
does not call `run` itself: `access.actions.Actions` decodes the body and checks the caller's rights first.
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
    """The base of the bodies of actions. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EmptyBody(Body):
    """The body of an action that needs none: no bytes, or `{}`."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action: its wire name, a sentence that describes it, the model of its JSON body, and its function.

    `run` is called in the handler's thread with the decoded body. Each mapping that it yields is one JSON result. An
    action that is `at_once` never waits, and runs without admission.

    `verb` is the verb that the caller needs on the device that the body names, or on the server if the body names none;
    None: every authenticated caller may run it. A `public` action is for everybody who reaches the port. `shown`
    returns the part of a result that an identity may see, or None.
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
    """An action whose body is not JSON. `run` takes the bytes of the body and the caller, and yields bytes.

    `run` checks the caller's rights itself. An action that is `at_once` never waits, and runs without admission. One
    that is not `listed` is left out of the answer of list_actions.
    """

    name: str
    description: str
    run: Callable[[bytes, Identity], Iterable[bytes]]
    at_once: bool = True
    listed: bool = True
