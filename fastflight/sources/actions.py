"""The actions on devices and their files.

An action runs in the thread of the caller and holds a lease of the device until it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from fastflight.access.action import Action, Body, EmptyBody
from fastflight.access.identity import Identity
from fastflight.device import Inventory, Session
from fastflight.errors import DeviceError, RequestError
from fastflight.service.requests import MAX_CODE_CHARACTERS, MAX_OFFSET, Conditional, DeviceName, DevicePath, Verb
from fastflight.sources.device_tree import is_leftover
from fastflight.transport.url import scheme_of

Result = Mapping[str, Any]
Publishing = Callable[[str], list[dict[str, object]]]
CrashSummary = Callable[[str], Mapping[str, Any] | None]
B = TypeVar("B", bound="OnDevice")


class OnDevice(Body):
    """`interrupt`: stop the program that runs on the device, instead of answering that the device is busy."""

    device: DeviceName
    interrupt: bool = False


class OnPath(OnDevice):
    """A file or folder."""

    path: DevicePath


class Hash(OnPath):
    """`limit`: hash only the first bytes of a file. `recursive`: hash every file below a folder, one result each."""

    limit: Annotated[int | None, Field(ge=0, le=MAX_OFFSET)] = None
    recursive: bool = False


class Rename(OnPath):
    """`to`: the new path; a file at that path is replaced."""

    to: DevicePath


class Remove(Conditional, OnPath):
    """`if_match`, `if_none_match`: entity tags that the file must have, or must not have, as for a write."""


class Execute(OnDevice):
    """`timeout`: seconds without output after which the code counts as hung."""

    code: Annotated[str, Field(max_length=MAX_CODE_CHARACTERS)]
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 60.0


class Reset(OnDevice):
    """`soft` restarts the interpreter, `hard` restarts the board. Both stop the running program.

    Then `main.py` runs, unless a soft reset says `"main": false`.
    """

    kind: Literal["soft", "hard"] = "soft"
    main: bool = True


def device_actions(
    inventory: Inventory,
    publishing: Publishing = lambda name: [],
    crashes: CrashSummary = lambda name: None,
) -> list[Action]:
    """Return the actions on the devices of `inventory`.

    `publishing` returns the state of each output of a device, `crashes` is `Crashes.summary`.
    """

    def on_session(
        name: str, verb: Verb, description: str, body: type[B], work: Callable[[Session, B], Sequence[Result]]
    ) -> Action:
        def run(request: B) -> Iterable[Result]:
            interrupt = request.interrupt or isinstance(request, Reset)
            with inventory.device(request.device).lease(f"a {name} action", interrupt=interrupt) as session:
                return work(session, request)

        return Action(name, description, body, run, verb=verb)

    read, write, exec_ = Verb.READ, Verb.WRITE, Verb.EXEC

    return [
        Action(
            "devices",
            "All devices: name, url, kind (micropython, lines for one that only prints, or unknown), whether the line "
            "is open, holder, recording state, outputs (publishing), trouble, when the device last sent data outside "
            "of requests (last_data, ms since 1970), and its crashes: count, and last, error and place of the newest.",
            EmptyBody,
            partial(_devices, inventory, publishing, crashes),
            verb=None,
            shown=_visible_part,
        ),
        Action(
            "device.info",
            "What the board reports about itself. For a device that only prints, kind is lines, and the rest empty.",
            OnDevice,
            partial(_info, inventory),
            verb=read,
        ),
        on_session(
            "device.exec",
            exec_,
            "Run code to its end; returns its output, and the traceback if it raised.",
            Execute,
            _execute,
        ),
        on_session("device.reset", exec_, "Restart the interpreter (soft) or the board (hard).", Reset, _reset),
        on_session("file.stat", read, "One file or folder: path, kind, size, modified.", OnPath, _stat),
        on_session("file.mkdir", write, "Make a folder.", OnPath, _mkdir),
        on_session("file.remove", write, "Remove a file or an empty folder.", Remove, _remove),
        on_session("file.rename", write, "Rename or move a file or folder.", Rename, _rename),
        on_session(
            "file.hash",
            read,
            "The digest of a file, or of each file below a folder, computed on the board.",
            Hash,
            _hash,
        ),
    ]


def _devices(inventory: Inventory, publishing: Publishing, crashes: CrashSummary, _: EmptyBody) -> Iterable[Result]:
    for device in inventory.devices():
        yield {
            "name": device.name,
            "url": device.url,
            "kind": device.kind,
            "open": device.is_open,
            "holder": device.holder,
            "recording": device.recording or None,
            "publishing": publishing(device.name),
            "trouble": device.trouble or None,
            "last_data": None if device.tap.heard_ns is None else device.tap.heard_ns // 1_000_000,
            "crashes": crashes(device.name),
        }


def _visible_part(identity: Identity, result: Result) -> Result | None:
    """Return what `identity` may see of a device; None hides it.

    The full URL, which may hold an address or a command line, is for administrators of the device. `last_data` and
    `crashes` are for callers that may read its sessions.
    """
    name = result["name"]
    if not identity.may(Verb.SESSION, name):
        result = {key: None if key in ("last_data", "crashes") else value for key, value in result.items()}
    if identity.may(Verb.ADMIN, name):
        return result
    result = {**result, "publishing": []} if "publishing" in result else result
    return {**result, "url": scheme_of(result["url"])} if identity.sees(name) else None


def _info(inventory: Inventory, body: OnDevice) -> Sequence[Result]:
    device = inventory.device(body.device)
    if (known := device.known_info(interrupt=body.interrupt)) is not None:
        return [{"name": device.name, **asdict(known)}]
    with device.lease("a device.info action", interrupt=body.interrupt) as session:
        return [{"name": device.name, **asdict(session.info())}]


def _execute(session: Session, body: Execute) -> Sequence[Result]:
    output = session.exec(body.code, timeout=body.timeout)
    return [{"stdout": _text(output.stdout), "stderr": _text(output.stderr)}]


def _reset(session: Session, body: Reset) -> Sequence[Result]:
    if body.kind == "hard":
        session.hard_reset()
    else:
        session.soft_reset(main=body.main)
    return [{"device": body.device, "reset": body.kind}]


def _stat(session: Session, body: OnPath) -> Sequence[Result]:
    return [asdict(session.stat(body.path))]


def _mkdir(session: Session, body: OnPath) -> Sequence[Result]:
    session.mkdir(body.path)
    return [{"path": body.path}]


def _remove(session: Session, body: Remove) -> Sequence[Result]:
    if body.conditional:
        body.check_version(session.version(body.path))
    session.remove(body.path)
    return [{"path": body.path}]


def _rename(session: Session, body: Rename) -> Sequence[Result]:
    session.rename(body.path, body.to)
    return [{"path": body.to}]


def _hash(session: Session, body: Hash) -> Sequence[Result]:
    if body.recursive and body.limit is not None:
        raise RequestError("it cannot be combined with recursive", where="limit", hint="Leave one of them out")
    if body.recursive:
        hashed = [asdict(each) for each in session.hashes(body.path) if not is_leftover(each.path)]
    else:
        algorithm, digest = session.hash(body.path, limit=body.limit)
        hashed = [{"path": body.path, "algorithm": algorithm, "digest": digest}]
    if not all(each["algorithm"] for each in hashed):
        raise DeviceError(
            "this board cannot compute hashes", where=body.path, hint="Read the file: its summary holds the sha256"
        )
    return hashed


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")
