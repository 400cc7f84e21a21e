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
from fastflight.protocol import Conversation

from .asgi_client import HERE, AsgiClient, scope
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


# How often an answer opens the board: for a file with an entity tag, and for one without.
OPENINGS = {
    "whole": ({}, 1, 1),
    "rows": ({"accept": "text/csv"}, 1, 1),
    "a range": ({"range": "bytes=1-9"}, 1, 1),
    "a range beyond the end": ({"range": "bytes=3000-3009"}, 1, 1),
    "the last bytes": ({"range": "bytes=-9"}, 2, 2),
    "the rest without a version": ({"range": "bytes=1000-"}, 1, 1),
    "the rest of this version": ({"range": "bytes=1000-", "if-range": "TAG"}, 1, 2),
    "the rest of another version": ({"range": "bytes=1000-", "if-range": '"other"'}, 2, 2),
    "a version that is there": ({"if-match": "TAG"}, 1, 1),
    "a range of a version that is there": ({"range": "bytes=1000-", "if-match": "TAG"}, 1, 1),
    "a version that is gone": ({"if-match": '"other"'}, 1, 1),
    "a version that the client has": ({"if-none-match": "TAG"}, 1, 2),
    "a version that the client has not": ({"if-none-match": '"other"'}, 2, 2),
}


@pytest.mark.parametrize(("headers", "openings", "untagged"), OPENINGS.values(), ids=OPENINGS.keys())
def test_an_answer_opens_its_board_once_if_it_knows_beforehand_what_to_read(
    board: BoardGateway, tag: str, headers: dict[str, str], openings: int, untagged: int
) -> None:
    (board.folder / "a.csv").write_bytes(OLD)
    sent = {name: value.replace("TAG", tag or '"none"') for name, value in headers.items()}
    turns = board.device.turns
    board.ask("GET", "a.csv", headers=sent)
    assert board.device.turns == turns + (openings if tag else untagged)
    board.ask("HEAD", "a.csv", headers=sent)
    assert board.device.turns == turns + (openings if tag else untagged) + 1


@pytest.mark.parametrize("range_", ["bytes=1-9", "bytes=2991-"])
def test_a_part_of_a_version_is_given_with_it_or_not_at_all(board: BoardGateway, tag: str, range_: str) -> None:
    part = board.ask("GET", "a.bin", headers={"range": range_, "if-range": tag or '"none"'})
    if tag:
        start = 1 if range_ == "bytes=1-9" else 2991
        assert (part.status, part.body, part.headers[b"etag"].decode()) == (206, OLD[start : start + 9], tag)
        assert part.headers[b"content-range"] == f"bytes {start}-{start + 8}/3000".encode()
        assert part.headers[b"content-length"] == b"9"
    else:
        assert (part.status, part.body) == (200, OLD)


def test_a_part_of_any_version_tells_none(board: BoardGateway, tag: str) -> None:
    """So no client joins it with another part."""
    part = board.ask("GET", "a.bin", headers={"range": "bytes=1-9"})
    assert (part.status, part.body) == (206, OLD[1:10])
    assert part.headers[b"content-range"] == b"bytes 1-9/3000"
    assert b"etag" not in part.headers
    assert (part.headers[b"cache-control"], part.headers[b"accept-ranges"]) == (b"no-store", b"bytes")


# Parts of a file, and whether the board must read all of it to compute its digest.
PARTS: list[tuple[dict[str, str], bool]] = [
    ({"range": "bytes=0-99"}, False),
    ({"range": "bytes=100-199"}, False),
    ({"range": "bytes=-100"}, False),
    ({"range": "bytes=9000-9099"}, False),
    ({"range": "bytes=0-"}, True),
    ({"range": "bytes=100-199", "if-range": "TAG"}, True),
    ({"range": "bytes=100-199", "if-match": "TAG"}, True),
    ({"range": "bytes=100-199", "if-none-match": '"other"'}, True),
]


@pytest.mark.parametrize(("headers", "hashes"), PARTS)
def test_a_board_reads_all_of_a_file_only_where_a_part_needs_its_version(
    board: BoardGateway, tag: str, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], hashes: bool
) -> None:
    asked: list[str] = []
    compute = digest.digest

    def counted(link: BoardLink, path: str, limit: int | None = None) -> Conversation[tuple[str, str]]:
        asked.append(path)
        return (yield from compute(link, path, limit))

    monkeypatch.setattr(digest, "digest", counted)
    board.ask("GET", "a.bin", headers={name: value.replace("TAG", tag or '"none"') for name, value in headers.items()})
    assert bool(asked) is hashes


@pytest.mark.parametrize("range_", ["bytes=1000-", "bytes=1000-2999", "bytes=-2000"])
@pytest.mark.parametrize("field", ["if-range", "if-match"])
def test_a_download_goes_on_with_its_own_version_alone(board: BoardGateway, tag: str, field: str, range_: str) -> None:
    headers = {"range": range_, field: tag or '"none"'}
    same = board.ask("GET", "a.bin", headers=headers)
    (board.folder / "a.bin").write_bytes(NEW)
    other = board.ask("GET", "a.bin", headers=headers)
    if field == "if-match":
        assert (same.status, other.status) == (206 if tag else 412, 412)
    else:
        assert (same.status, same.body) == ((206, OLD[1000:]) if tag else (200, OLD))
        assert (other.status, other.body) == (200, NEW)


def test_the_rest_without_a_version_is_the_whole(board: BoardGateway, tag: str) -> None:
    """As `curl -C -` asks: it may have the beginning of another version."""
    rest = board.ask("GET", "a.bin", headers={"range": "bytes=1000-"})
    assert (rest.status, rest.body) == (200, OLD)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("field", "value", "status", "untagged"),
    [
        ("if-none-match", "TAG", 304, 200),
        ("if-none-match", "W/TAG", 304, 200),
        ("if-none-match", '"x,y", TAG', 304, 200),
        ("if-none-match", '"other"', 200, 200),
        ("if-none-match", "*", 304, 304),
        ("if-match", "TAG", 200, 412),
        ("if-match", '"x", TAG', 200, 412),
        ("if-match", "W/TAG", 412, 412),
        ("if-match", '"other"', 412, 412),
        ("if-match", "*", 200, 200),
    ],
)
def test_conditions(
    board: BoardGateway, tag: str, method: str, field: str, value: str, status: int, untagged: int
) -> None:
    answer = board.ask(method, "a.bin", headers={field: value.replace("TAG", tag or '"none"')})
    assert answer.status == (status if tag else untagged)
    if answer.status == 304:
        assert (answer.body, answer.headers.get(b"etag", b"").decode()) == (b"", tag)
        assert b"content-length" not in answer.headers
    elif answer.status == 200:
        assert answer.body == (OLD if method == "GET" else b"")


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize(
    ("field", "value", "done"),
    [
        ("if-match", "TAG", True),
        ("if-match", '"other"', False),
        ("if-match", "*", True),
        ("if-none-match", "*", False),
        ("if-none-match", "TAG", False),
        ("if-none-match", '"other"', True),
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


LONG = random.Random(1).randbytes(200_000)  # which no line packs


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("becomes", [LONG[:-1] + b"x", LONG + b"x", LONG[:-1]], ids=["other", "longer", "shorter"])
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
    assert answered.headers[b"content-length"] == b"200000"
    assert not answered.ended
    assert len(answered.body) < len(LONG)
    assert LONG.startswith(answered.body)
