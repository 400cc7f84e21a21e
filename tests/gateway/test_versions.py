"""Versions of a file over HTTP: entity tags, conditions, and downloads during which the file changes."""

from __future__ import annotations

import contextlib
import hashlib
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.device.transfer import digest
from fastflight.device.transfer.link import BoardLink
from fastflight.errors import RequestError
from fastflight.gateway.content.conditions import Conditions
from fastflight.gateway.errors import error_answer
from fastflight.protocol import Conversation

from .asgi_client import HERE, AsgiClient, ask, scope
from .board_gateway import BoardGateway, in_front_of_a_board

# Modules that the board lacks, and the algorithm of its digests.
BOARDS = {"": "sha256", "hashlib": "crc32", "hashlib,binascii": ""}
OLD, NEW = b"old" * 1000, b"new" * 1000


@pytest.fixture(scope="module", params=BOARDS)
def lacks(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def board(lacks: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardGateway]:
    options = {"without": lacks} if lacks else {}
    with in_front_of_a_board(tmp_path_factory.mktemp("board"), **options) as board:
        yield board


@pytest.fixture
def tag(board: BoardGateway, lacks: str) -> str:
    """The entity tag of `a.bin`, which is new; empty on a board that can take no digest."""
    (board.folder / "a.bin").write_bytes(OLD)
    crc32 = f'"crc32-{zlib.crc32(OLD):08x}-{len(OLD)}"'
    return {"sha256": f'"sha256-{hashlib.sha256(OLD).hexdigest()}"', "crc32": crc32, "": ""}[BOARDS[lacks]]


def test_a_file_has_the_digest_of_its_board_as_its_tag(board: BoardGateway, tag: str) -> None:
    whole, head = board.ask("GET", "a.bin"), board.ask("HEAD", "a.bin")
    assert (whole.status, whole.body, whole.ended) == (200, OLD, True)
    assert (head.status, head.body) == (200, b"")
    assert set(head.headers) == set(whole.headers)
    assert all(head.headers[name] == whole.headers[name] for name in whole.headers if name != b"x-request-id")
    assert whole.headers.get(b"etag", b"").decode() == tag
    assert whole.headers[b"accept-ranges"] == (b"bytes" if tag else b"none")
    assert whole.headers[b"content-length"] == b"3000"


# Headers; the status, the part of the file, and how often the board is opened, for a file with an entity tag and for
# one without; and whether the board must read all of the file, for its digest.
WHOLE, PART, REST, NONE = slice(None), slice(1, 10), slice(1000, None), slice(0)
ANSWERS: dict[str, tuple[dict[str, str], tuple[int, slice, int], tuple[int, slice, int], bool]] = {
    "whole": ({}, (200, WHOLE, 1), (200, WHOLE, 1), True),
    "a range": ({"range": "bytes=1-9"}, (206, PART, 1), (206, PART, 1), False),
    "a range beyond the end": ({"range": "bytes=3000-3009"}, (416, NONE, 1), (416, NONE, 1), False),
    "the last bytes": ({"range": "bytes=-2000"}, (206, REST, 2), (206, REST, 2), False),
    "the rest without a version": ({"range": "bytes=1000-"}, (200, WHOLE, 1), (200, WHOLE, 1), True),
    "the rest of this version": ({"range": "bytes=1000-", "if-range": "TAG"}, (206, REST, 1), (200, WHOLE, 2), True),
    "a range of this version": ({"range": "bytes=1-9", "if-range": "TAG"}, (206, PART, 1), (200, WHOLE, 2), True),
    "the last of this version": ({"range": "bytes=-2000", "if-range": "TAG"}, (206, REST, 2), (200, WHOLE, 2), True),
    "the rest of another": ({"range": "bytes=1000-", "if-range": '"other"'}, (200, WHOLE, 2), (200, WHOLE, 2), True),
    "a version that is there": ({"if-match": "TAG"}, (200, WHOLE, 1), (412, NONE, 1), True),
    "a range of one": ({"range": "bytes=1000-", "if-match": "TAG"}, (206, REST, 1), (412, NONE, 1), True),
    "a version that is gone": ({"if-match": '"other"'}, (412, NONE, 1), (412, NONE, 1), True),
    "a version that the client has": ({"if-none-match": "TAG"}, (304, NONE, 1), (200, WHOLE, 2), True),
    "a version that the client has not": ({"if-none-match": '"other"'}, (200, WHOLE, 2), (200, WHOLE, 2), True),
}


@pytest.mark.parametrize(("headers", "tagged", "untagged", "hashes"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_costs_its_board_no_more_than_it_needs(
    board: BoardGateway,
    tag: str,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    tagged: tuple[int, slice, int],
    untagged: tuple[int, slice, int],
    hashes: bool,
) -> None:
    hashed: list[str] = []
    compute = digest.digest

    def counted(link: BoardLink, path: str, limit: int | None = None) -> Conversation[tuple[str, str]]:
        hashed.append(path)
        return (yield from compute(link, path, limit))

    monkeypatch.setattr(digest, "digest", counted)
    sent = {name: value.replace("TAG", tag or '"none"') for name, value in headers.items()}
    status, part, openings = tagged if tag else untagged
    turns = board.device.turns
    answer = board.ask("GET", "a.bin", headers=sent)
    assert (answer.status, board.device.turns - turns, bool(hashed)) == (status, openings, hashes)
    if status == 200 or status == 206:
        assert answer.body == OLD[part]
        assert answer.headers[b"content-length"] == str(len(OLD[part])).encode()
        # A part without a version tells none, so that no client joins it with another part.
        assert answer.headers.get(b"etag", b"").decode() == (tag if hashes else "")
        assert answer.headers[b"accept-ranges"] == (b"bytes" if tag or status == 206 else b"none")
    if status == 206:
        start, stop, _ = part.indices(3000)
        assert answer.headers[b"content-range"] == f"bytes {start}-{stop - 1}/3000".encode()
    if status == 304:
        assert (answer.body, answer.headers[b"etag"].decode()) == (b"", tag)
        assert b"content-length" not in answer.headers
    turns = board.device.turns
    board.ask("HEAD", "a.bin", headers=sent)
    assert board.device.turns == turns + 1


def test_rows_open_the_board_once(board: BoardGateway, tag: str) -> None:
    (board.folder / "a.csv").write_bytes(OLD)
    turns = board.device.turns
    assert board.ask("GET", "a.csv", headers={"accept": "text/csv"}).status == 200
    assert board.device.turns == turns + 1


@pytest.mark.parametrize(("field", "done"), [("if-range", 200), ("if-match", 412)])
def test_a_download_does_not_go_on_with_another_version(board: BoardGateway, tag: str, field: str, done: int) -> None:
    (board.folder / "a.bin").write_bytes(NEW)
    other = board.ask("GET", "a.bin", headers={"range": "bytes=1000-", field: tag or '"none"'})
    assert (other.status, other.body == NEW) == (done, done == 200)


TAG = '"sha256-ab"'


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("field", "value", "status", "untagged"),
    [
        ("if-none-match", TAG, 304, 200),
        ("if-none-match", f"W/{TAG}", 304, 200),
        ("if-none-match", f'"x,y", {TAG}', 304, 200),
        ("if-none-match", '"other"', 200, 200),
        ("if-none-match", "*", 304, 304),
        ("if-match", TAG, 200, 412),
        ("if-match", f'"x", {TAG}', 200, 412),
        ("if-match", f"W/{TAG}", 412, 412),
        ("if-match", '"other"', 412, 412),
        ("if-match", "*", 200, 200),
    ],
)
def test_conditions(method: str, field: str, value: str, status: int, untagged: int) -> None:
    def judged(etag: str) -> int:
        try:
            return Conditions(method, lambda name: value if name == field else "").judge(3000, etag).status
        except RequestError as error:
            return error_answer(error)[0]

    assert (judged(TAG), judged("")) == (status, untagged)


@pytest.mark.parametrize(
    ("method", "field", "value", "done"),
    [
        ("PUT", "if-match", "TAG", True),
        ("PUT", "if-match", '"other"', False),
        ("DELETE", "if-match", "*", True),
        ("PUT", "if-none-match", "*", False),
        ("DELETE", "if-none-match", "TAG", False),
        ("PUT", "if-none-match", '"other"', True),
    ],
)
def test_what_changes_a_file_heeds_its_conditions(
    board: BoardGateway, tag: str, method: str, field: str, value: str, done: bool
) -> None:
    if not tag and "TAG" in value:  # nobody knows which version is there
        done = field == "if-none-match"
    answer = board.ask(method, "a.bin", NEW, headers={field: value.replace("TAG", tag or '"none"')})
    assert (answer.status == 412) is not done
    there = (board.folder / "a.bin").read_bytes() if (board.folder / "a.bin").exists() else None
    assert there == (OLD if not done else NEW if method == "PUT" else None)


def test_of_two_writers_of_one_version_only_the_first_replaces_it(board: BoardGateway, tag: str) -> None:
    conditions = (b"if-match", tag.encode()) if tag else (b"if-none-match", b"*")
    path = "a.bin" if tag else "new.bin"

    async def work() -> tuple[int, int]:
        headers = (HERE, conditions, (b"content-type", b"text/csv"))
        asked = scope(f"/devices/demo/files/{path}", "PUT", headers, "file_format=jsonl")
        slow = AsgiClient(board.app, asked, b"n\n1\n", whole=False)
        fast = await ask(board.app, asked, b"n\n2\n")
        slow.send(b"3\n")
        await slow.call
        return fast.status, slow.answered.status

    assert board.run(work()) == (201, 412)
    assert (board.folder / path).read_bytes() == b'{"n":2}\n'
    (board.folder / path).unlink()


@pytest.mark.parametrize(("field", "status"), [("if-match", 412), ("if-none-match", 201)])
def test_what_is_not_there_matches_nothing(board: BoardGateway, field: str, status: int) -> None:
    assert board.ask("PUT", "b.bin", NEW, headers={field: "*"}).status == status
    assert (board.folder / "b.bin").exists() is (status == 201)
    with contextlib.suppress(FileNotFoundError):
        (board.folder / "b.bin").unlink()


def test_a_folder_has_entries_whatever_is_asked_of_it(board: BoardGateway) -> None:
    for headers in ({"range": "bytes=0-9"}, {"accept": "application/json"}, {"accept": "text/csv"}):
        assert board.ask("GET", "", headers=headers).json["entries"]
    assert board.ask("HEAD", "").status == 200


LONG = random.Random(1).randbytes(100_000)  # which no line packs


@pytest.mark.parametrize(
    ("mode", "becomes"),
    [("sync", LONG[:-1] + b"x"), ("async", LONG + b"x"), ("sync", LONG[:-1])],
    ids=["other", "longer", "shorter"],
)
def test_a_file_that_changes_while_it_is_read_is_broken_off(tmp_path: Path, mode: str, becomes: bytes) -> None:
    (tmp_path / "a.bin").write_bytes(LONG)

    async def run() -> AsgiClient:
        client = AsgiClient(board.app, scope("/devices/demo/files/a.bin", "GET", (HERE,), f"mode={mode}"))
        await client.got(1)
        with (tmp_path / "a.bin").open("r+b") as file:
            file.write(becomes)
            file.truncate()
        await client.call
        return client

    with in_front_of_a_board(tmp_path, baud=921_600) as board:
        answered = board.run(run()).answered
    assert answered.headers[b"content-length"] == b"100000"
    assert not answered.ended
    assert len(answered.body) < len(LONG)
    assert LONG.startswith(answered.body)
