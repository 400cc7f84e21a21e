"""The variables of the board's program: no request changes one, and none that hides a builtin breaks a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastflight.device import Device, Session, Transfer
from fastflight.errors import DeviceError, FileMissing
from fastflight.protocol import Conversation
from fastflight.transport import parse_url, run
from tests.device.test_beside import running

# Names that fastflight's code uses or used, and builtins that a program may have taken for variables.
TAKEN = "n,p,m,k,a,f,s,os,sys,gc,e,h,w,b,c".split(",")
SHADOWED = (
    "len,repr,open,min,bytes,getattr,hasattr,sum,list,str,dict,int,range,memoryview,bytearray,eval,exec,globals,type"
).split(",")
PROGRAM = (
    "".join(f"{name}={value}\n" for value, name in enumerate((*TAKEN, *SHADOWED))) + "OSError=Exception=print=...\n"
)
# In pieces: a small heap has no room for all of it at once.
LISTED = "import builtins as _b\n_b.print(_b.sorted(_b.globals()))"
VALUES = "_b.print({})"

CONTENT = bytes(range(256)) * 3
VERBS: dict[str, Callable[[Session], object]] = {
    "info": lambda session: session.info(),
    "list": lambda session: session.list(recursive=True),
    "write": lambda session: session.write("/new.bin", [CONTENT[:500], CONTENT[500:]]),
    "write as text": lambda session: session.write("/t.bin", [CONTENT], transfer=Transfer(method="literal")),
    "stat": lambda session: session.stat("/new.bin"),
    "read": lambda session: list(session.read("/new.bin")),
    "read as text": lambda session: list(session.read("/new.bin", offset=5, transfer=Transfer(method="literal"))),
    "hash": lambda session: session.hash("/new.bin"),
    "write a tree": lambda session: session.write_tree("/d", [("a.txt", [b"1" * 99]), ("b.txt", [b"2" * 99])]),
    "hashes": lambda session: session.hashes("/d"),
    "part": lambda session: session.part("/none"),
    "mkdir": lambda session: session.mkdir("/folder"),
    "rename": lambda session: session.rename("/d/a.txt", "/d/c.txt"),
    "remove": lambda session: session.remove("/d/b.txt"),
    "missing": lambda session: list(session.read("/none")),
    "a broken write": lambda session: session.write("/new.bin", broken()),
}


def broken() -> Iterator[bytes]:
    yield CONTENT
    raise OSError("the source broke")


def variables(device: Device) -> list[bytes]:
    """The names and values of all variables in `__main__`."""
    with device.lease("a test") as session:
        values = [VALUES.format(",".join(names)) for names in (TAKEN, SHADOWED, ["OSError,Exception,print"])]
        said = [session.exec(code) for code in (LISTED, *values)]
    assert not any(each.stderr for each in said), said
    return [each.stdout for each in said]


def check(device: Device, *, verbs: dict[str, Callable[[Session], object]] = VERBS) -> None:
    """Use each verb once. One that the board does not support is refused as such."""
    before = variables(device)
    for name, verb in verbs.items():
        try:
            with device.lease("a test") as session:
                verb(session)
        except FileMissing:
            assert name == "missing" or not session.capabilities.has("os.rename"), name
        except OSError:
            assert name == "a broken write"
        except DeviceError as error:
            assert "this board has no" in error.what, (name, error)
        assert variables(device) == before, name


@pytest.mark.parametrize(
    "options",
    ["", "&no-raw-paste=1", "&without=hashlib", "&without=hashlib,binascii"],
    ids=["usual", "without raw paste", "without sha256", "without digests"],
)
def test_requests_leave_the_variables_of_a_simulated_board(tmp_path: Path, options: str) -> None:
    (tmp_path / "main.py").write_text(PROGRAM)
    device = Device("board", parse_url(f"sim:?files={tmp_path}&telemetry=0{options}"))
    try:
        check(device)
    finally:
        device.close()


@pytest.mark.parametrize("kind", ["aiorepl", "timer"])
def test_requests_leave_the_variables_of_a_program_that_runs(tmp_path: Path, kind: str) -> None:
    with running(tmp_path, kind) as board:
        with board.device.lease("a test") as session:
            # Not `print`, which this program uses.
            assert session.exec(PROGRAM.replace("=print", "") + "print=print\n").stderr == b""
        check(board.device, verbs={name: verb for name, verb in VERBS.items() if name != "a broken write"})


def test_builtins_that_a_program_has_replaced_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import builtins\nbuiltins.print = builtins.open = builtins.len = None\n")
    device = Device("board", parse_url(f"sim:?files={tmp_path}&telemetry=0"))
    try:
        with device.lease("a test") as session:
            assert session.write("/new.bin", [CONTENT]).verified == "sha256"
            assert b"".join(session.read("/new.bin")) == CONTENT
            assert [each.path for each in session.list()] == ["/main.py", "/new.bin"]
            assert session.exec("print").stderr == b""
            assert b"'NoneType' object is not callable" in session.exec("print()").stderr
    finally:
        device.close()


@pytest.mark.parametrize("options", ["", "&no-raw-paste=1"], ids=["usual", "without raw paste"])
def test_a_request_that_breaks_off_leaves_nothing(tmp_path: Path, options: str) -> None:
    (tmp_path / "main.py").write_text(PROGRAM)
    device = Device("board", parse_url(f"sim:?files={tmp_path}&telemetry=0{options}"))
    try:
        before = variables(device)
        for steps in range(1, 20):
            with device.lease("a test") as session:
                listing = session._board.guarded(session._board.list("/"))
                run(cut(listing, steps), session._session._port)
            assert variables(device) == before, steps
    finally:
        device.close()


def cut(conversation: Conversation[object], steps: int) -> Conversation[None]:
    """The first steps of a conversation, which is then abandoned."""
    try:
        step = next(conversation)
        for _ in range(steps):
            step = conversation.send((yield step))
    except StopIteration:
        pass
    conversation.close()
