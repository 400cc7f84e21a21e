"""Files and folders copied by both clients, with the real server and its simulated board."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fastflight.app.local_board import LocalBoard, PluggedBoard
from fastflight.client import AsyncFastFlightClient, Copied, CopiedTree, FastFlightClient
from fastflight.client.cancel_scope import CancelScope
from fastflight.client.server_board import ServerBoard
from fastflight.errors import BusyError, DataError, FileMissing, RequestError, Stopped
from fastflight.service.requests import Request
from tests.support.folders import files_below
from tests.support.servers import ready_server

CONTENT = bytes(range(256)) * 400
SHA256 = hashlib.sha256(CONTENT).hexdigest()

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("board")


@pytest.fixture(scope="module")
def location(board: Path) -> Iterator[str]:
    with ready_server({"demo": f"sim:?files={board}&telemetry=0"}) as location:
        yield location


@pytest.fixture(scope="module")
def no_server(board: Path) -> Iterator[PluggedBoard]:
    with closing(PluggedBoard(f"sim:?files={board}&telemetry=0")) as plugged:
        plugged.board().info()
        yield plugged


@pytest.fixture(params=["sync client", "async client", "no server"])
def do(request: pytest.FixtureRequest, location: str, no_server: PluggedBoard) -> Iterator[Call]:
    """Call a method of a client: `do("put_file", "demo", ...)`. Each asks for the server's path of its own kind."""
    if request.param == "no server":

        def call_board(name: str, device: str, *given: Any, transfer: Any = "auto", **keys: Any) -> Any:
            return getattr(no_server.board(transfer=transfer), name)(*given, **keys)

        yield call_board
        return
    if request.param == "sync client":
        with FastFlightClient(location) as client:
            yield lambda name, *given, **keys: getattr(client, name)(*given, mode="sync", **keys)
        return

    def call(name: str, *given: Any, **keys: Any) -> Any:
        async def main() -> Any:
            async with AsyncFastFlightClient(location) as client:
                return await getattr(client, name)(*given, **keys)

        return asyncio.run(main())

    yield call


@pytest.fixture
def local(no_server: PluggedBoard) -> LocalBoard:
    """One of the boards, for what does not depend on the way to it."""
    return no_server.board()


class CopyInterrupted(Exception):
    """What a test breaks a copy off with."""


def breaking(rows: int, done: int, total: int | None) -> None:
    """A `Report` that breaks the copy off once the first bytes are stored."""
    if done:
        raise CopyInterrupted


def test_a_file_goes_there_and_back(do: Call, board: Path, tmp_path: Path) -> None:
    here, back = tmp_path / "here.bin", tmp_path / "back.bin"
    here.write_bytes(CONTENT)
    seen: list[tuple[int, int, int | None]] = []
    copied = do("put_file", "demo", "/a.bin", here, progress=lambda *told: seen.append(told))
    assert copied == Copied(len(CONTENT), SHA256)
    assert (seen[0], seen[-1][1:]) == ((0, 0, len(CONTENT)), (len(CONTENT), len(CONTENT)))
    assert (board / "a.bin").read_bytes() == CONTENT

    seen.clear()
    assert do("get_file", "demo", "/a.bin", back, progress=lambda *told: seen.append(told)) == copied
    assert (seen[0], seen[-1][1:]) == ((0, 0, len(CONTENT)), (len(CONTENT), len(CONTENT)))
    assert back.read_bytes() == CONTENT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.bin", "here.bin"]


def test_put_goes_on_where_it_broke_off_unless_the_file_has_changed(do: Call, board: Path, tmp_path: Path) -> None:
    here = tmp_path / "here.bin"
    resumed: list[tuple[int, int]] = []
    for content, is_new in ((CONTENT, False), (CONTENT[::-1], True)):
        here.write_bytes(CONTENT)
        with pytest.raises(CopyInterrupted):
            do("put_file", "demo", "/new.bin", here, progress=breaking)
        assert not (board / "new.bin").exists()
        here.write_bytes(content)
        copied = do("put_file", "demo", "/new.bin", here, resuming=lambda *at: resumed.append(at))
        assert copied.resumed_at == 0 if is_new else 16_384 <= copied.resumed_at < len(CONTENT)
        assert resumed == ([] if is_new else [(copied.resumed_at, len(CONTENT))])
        assert (board / "new.bin").read_bytes() == content
        (board / "new.bin").unlink()
        resumed.clear()


def test_a_copy_that_breaks_off_leaves_its_part_only_where_it_may_resume(do: Call, board: Path, tmp_path: Path) -> None:
    here, back = tmp_path / "here.bin", tmp_path / "back.bin"
    here.write_bytes(CONTENT)
    before = {path.name for path in board.iterdir()}
    with pytest.raises(CopyInterrupted):
        do("put_file", "demo", "/never.bin", here, resume=False, progress=breaking)
    assert {path.name for path in board.iterdir()} == before
    (board / "whole.bin").write_bytes(CONTENT)
    back.write_bytes(b"old")
    for resume in (False, True):
        with pytest.raises(CopyInterrupted):
            do("get_file", "demo", "/whole.bin", back, resume=resume, progress=breaking)
        assert (back.read_bytes(), (tmp_path / "back.bin.part").exists()) == (b"old", resume)
    part = (tmp_path / "back.bin.part").read_bytes()
    assert part and CONTENT.startswith(part)


@pytest.mark.parametrize(
    ("part", "resumed_at"),
    [(CONTENT[:40_000], 40_000), (CONTENT, len(CONTENT)), (b"", 0), (CONTENT[1:], 0), (CONTENT + b"more", 0)],
    ids=["a part", "all", "nothing", "another file", "more"],
)
def test_get_goes_on_with_a_part_of_this_file(
    do: Call, board: Path, tmp_path: Path, part: bytes, resumed_at: int
) -> None:
    (board / "a.bin").write_bytes(CONTENT)
    back = tmp_path / "back.bin"
    (tmp_path / "back.bin.part").write_bytes(part)
    resumed: list[tuple[int, int]] = []
    copied = do("get_file", "demo", "/a.bin", back, resuming=lambda *at: resumed.append(at))
    assert copied == Copied(len(CONTENT), SHA256, resumed_at=resumed_at)
    assert resumed == ([(resumed_at, len(CONTENT))] if resumed_at else [])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"back.bin": CONTENT}


def test_two_copies_to_one_place_do_not_mix(location: str, board: Path, tmp_path: Path) -> None:
    (board / "a.bin").write_bytes(CONTENT)
    (board / "b.bin").write_bytes(CONTENT[::-1])
    back = tmp_path / "back.bin"
    with FastFlightClient(location) as one, FastFlightClient(location) as other:

        def meanwhile(rows: int, done: int, total: int | None) -> None:
            with pytest.raises(BusyError, match="another copy is on its way there"):
                other.get_file("demo", "/b.bin", back)

        one.get_file("demo", "/a.bin", back, progress=meanwhile)
    assert back.read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["back.bin"]


def test_what_is_the_same_is_not_moved(do: Call, board: Path, tmp_path: Path) -> None:
    here = tmp_path / "here.bin"
    here.write_bytes(CONTENT)
    unchanged = Copied(len(CONTENT), SHA256, unchanged=True)
    assert not do("put_file", "demo", "/same.bin", here, skip_unchanged=True).unchanged
    assert do("put_file", "demo", "/same.bin", here, skip_unchanged=True) == unchanged
    assert do("get_file", "demo", "/same.bin", here, skip_unchanged=True) == unchanged
    here.write_bytes(CONTENT[::-1])
    assert not do("get_file", "demo", "/same.bin", here, skip_unchanged=True).unchanged
    assert here.read_bytes() == CONTENT
    (board / "same.bin").unlink()


# A verb, a path on the board and one here, and what it raises. The board has `/a.bin` and `/bad`, whose names lead out.
REFUSED: list[tuple[str, str, str, type[Exception], str]] = [
    ("put_file", "/x", "nowhere", RequestError, "nowhere: No such file"),
    ("put_file", "/x", ".", RequestError, "is not a file"),
    ("put_file", "/x", "pipe", RequestError, "pipe: is not a file"),
    ("get_file", "/a.bin", "nowhere/a.bin", RequestError, "No such file"),
    ("get_file", "/a.bin", ".", RequestError, "is not a file"),
    ("get_file", "/a.bin", "pipe", RequestError, "pipe: is not a file"),
    ("get_file", "/a.bin", "linked", RequestError, r"linked\.part: a link stands where"),
    ("get_file", "/not-there", "x" * 300, RequestError, "too long"),
    ("get_file", "/not-there", "a", FileMissing, "^board:/not-there: "),
    ("get_file", "/not-there", "loop", FileMissing, "^board:/not-there: "),
    ("get_tree", "/a.bin", "back", RequestError, "this is a file, not a folder"),
    ("get_tree", "/nowhere", "back", FileMissing, "^board:/nowhere: "),
    ("get_tree", "/bad", "back", DataError, "it holds a backslash"),
    ("put_tree", "/x", "nowhere", RequestError, "No such file"),
]


@pytest.mark.skipif(os.name == "nt", reason="has no named pipes in folders")
@pytest.mark.parametrize("keys", [{}, {"skip_unchanged": True}, {"resume": False}], ids=str)
@pytest.mark.parametrize(("verb", "path", "here", "error", "says"), REFUSED)
def test_a_copy_that_is_refused_changes_nothing_here(
    local: LocalBoard,
    board: Path,
    tmp_path: Path,
    verb: str,
    path: str,
    here: str,
    error: type[Exception],
    says: str,
    keys: dict[str, bool],
) -> None:
    plant(board, {"a.bin": CONTENT, "bad/a": b"a", "bad/x\\..\\y": b"y"})
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "linked.part").symlink_to(tmp_path / "other")
    (tmp_path / "other").write_bytes(b"another's")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(error, match=says):
        getattr(local, verb)(path, tmp_path / here, **({} if verb.endswith("tree") and "resume" in keys else keys))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["linked.part", "loop", "other", "pipe"]
    assert (tmp_path / "other").read_bytes() == b"another's"


def plant(folder: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


FILES = {"a.bin": CONTENT, "deep/er/b.py": b"print('b')\n", "deep/empty": b"", "z é.txt": b"z"}


def test_a_folder_goes_there_and_back(do: Call, board: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.id.replace(" ", "-")
    plant(tmp_path / "src", FILES)
    (tmp_path / "src" / "link").symlink_to("a.bin")
    seen: list[tuple[str, int, int]] = []
    size = sum(map(len, FILES.values()))
    copied = do("put_tree", "demo", f"/{name}/app", tmp_path / "src", progress=lambda *told: seen.append(told))
    assert copied == CopiedTree(tuple(sorted(FILES)), size, skipped=("link",))
    assert (seen[0], seen[-1]) == (("a.bin", 0, size), ("z é.txt", size, size))
    assert files_below(board / name / "app") == FILES

    plant(tmp_path / "back", {"kept": b"kept", "a.bin": b"old"})
    seen.clear()
    copied = do("get_tree", "demo", f"/{name}/app", tmp_path / "back", progress=lambda *told: seen.append(told))
    assert copied == CopiedTree(tuple(sorted(FILES)), size)
    assert (seen[0], seen[-1]) == (("a.bin", 0, size), ("z é.txt", size, size))
    assert files_below(tmp_path / "back") == {**FILES, "kept": b"kept"}


def test_only_what_differs_is_moved(do: Call, board: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = "/skip-" + request.node.callspec.id.replace(" ", "-")
    plant(tmp_path / "src", FILES)
    first = do("put_tree", "demo", folder, tmp_path / "src", skip_unchanged=True)
    assert (len(first.files), first.unchanged) == (4, ())
    plant(tmp_path / "src", {"deep/empty": b"not any more", "new": b"n"})
    second = do("put_tree", "demo", folder, tmp_path / "src", skip_unchanged=True)
    assert second == CopiedTree(("deep/empty", "new"), 13, ("a.bin", "deep/er/b.py", "z é.txt"))
    assert files_below(board / folder[1:]) == files_below(tmp_path / "src")

    assert do("get_tree", "demo", folder, tmp_path / "src", skip_unchanged=True).files == ()
    plant(tmp_path / "src", {"a.bin": CONTENT[::-1]})
    assert do("get_tree", "demo", folder, tmp_path / "src", skip_unchanged=True).files == ("a.bin",)
    assert files_below(board / folder[1:]) == files_below(tmp_path / "src")


def test_what_is_ignored_stays_here(do: Call, board: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = "/ignore-" + request.node.callspec.id.replace(" ", "-")
    plant(tmp_path / "src", FILES)
    copied = do("put_tree", "demo", folder, tmp_path / "src", ignore=["er", "*.bin"])
    assert copied == CopiedTree(("deep/empty", "z é.txt"), copied.bytes, ignored=("a.bin", "deep/er/"))
    assert set(files_below(board / folder[1:])) == {"deep/empty", "z é.txt"}
    (tmp_path / "empty").mkdir()
    assert do("put_tree", "demo", f"{folder}/nothing", tmp_path / "empty") == CopiedTree((), 0)
    assert not (board / folder[1:] / "nothing").exists()


def test_a_task_that_is_cancelled_leaves_what_was_stored(location: str, board: Path, tmp_path: Path) -> None:
    here = tmp_path / "here.bin"
    here.write_bytes(CONTENT)

    async def main() -> None:
        async with AsyncFastFlightClient(location) as client:
            loop = asyncio.get_running_loop()
            stored = asyncio.Event()

            def progress(rows: int, done: int, total: int | None) -> None:
                if done:
                    loop.call_soon_threadsafe(stored.set)

            writing = asyncio.create_task(client.put_file("demo", "/cut.bin", here, progress=progress))
            await stored.wait()
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            copied = await client.put_file("demo", "/cut.bin", here)
            assert copied.bytes == len(CONTENT)

    asyncio.run(main())
    assert (board / "cut.bin").read_bytes() == CONTENT


class _Late:
    """A connection whose answers come when the copy that asked was cancelled, and what became of them."""

    scope: CancelScope
    left = False

    def act_once(self, name: str, **body: Any) -> dict[str, Any]:
        return {"path": "/a", "kind": "file", "size": 3}

    def stream(self, request: Request) -> Any:
        self.scope.cancel()
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.left = True

    def cancel(self) -> None:
        pass


@pytest.mark.parametrize("kind", ["file", "tree"])
def test_an_answer_that_comes_after_the_copy_was_cancelled_is_left(tmp_path: Path, kind: str) -> None:
    """Else the server would keep the device for it."""
    late: Any = _Late()
    late.scope = CancelScope()
    board = ServerBoard(late, "demo", {}, late.scope)
    with pytest.raises(Stopped):
        board.get_file("/x", tmp_path / "x") if kind == "file" else board.get_tree("/x", tmp_path / "x")
    assert late.left
    assert list(tmp_path.iterdir()) == []


def test_work_that_was_cancelled_does_not_begin() -> None:
    scope = CancelScope()
    scope.cancel()
    with pytest.raises(Stopped), scope.stopping(lambda: None):
        pass
