"""Bad answers of boards: `answers` has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest

from fastflight.device import board, capabilities, listing
from fastflight.device.answers import failure
from fastflight.device.capabilities import Capabilities
from fastflight.device.transfer import digest
from fastflight.errors import RequestError
from fastflight.protocol import Conversation, RawRepl
from fastflight.protocol.raw_repl import Output
from tests.support.memory import play

from . import answers
from .case import Case, check, each

BOARD = Capabilities(frozenset({"os.ilistdir", "os.mkdir", "os.stat"}))


@dataclass
class Said(RawRepl):
    """A board that answers whatever it is asked with what stands next."""

    said: Iterator[bytes]

    paste = False

    def execute(self, code: bytes, within: float, *, sealed: bool = False) -> Conversation[Output]:
        return Output(next(self.said), b"")
        yield


def listed(said: Iterator[bytes], *, recursive: bool = False) -> list[tuple[str, int, float | None]]:
    entries = play(listing.listing(Said(said), BOARD, "/d", recursive), []).result
    return [(entry.path, entry.size, entry.modified) for entry in entries]


@each(answers.LISTINGS)
def test_a_listing(case: Case) -> None:
    check(case, lambda said: listed(iter([b"('', 16384, 0, 0)", said])))


def test_folders_without_end() -> None:
    """A board that says of each folder that it holds two more: 2^64 of them, before the depth would stop it."""
    folders = (b"('a', 16384, 0, 0)\n('b', 16384, 0, 0)" if number else b"('', 16384, 0, 0)" for number in count())
    with pytest.raises(RequestError, match="nest deeper than 64"):
        listed(folders, recursive=True)


def test_a_folder_of_more_entries_than_a_listing_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_ENTRIES", 100)
    many = b"\n".join(b"('%d', 32768, 0, 0)" % number for number in range(101))
    with pytest.raises(RequestError, match="more than 100 entries"):
        listed(iter([b"('', 16384, 0, 0)", many]))


@each(answers.DIGESTS)
def test_a_digest(case: Case) -> None:
    check(case, lambda said: [digest._parse_digest_line(said.decode("utf-8", "replace"), "sha256", "/d").path])


@each(answers.STORAGES)
def test_storage(case: Case) -> None:
    check(case, board._parse_storage)


@each(answers.TRACEBACKS)
def test_a_traceback(case: Case) -> None:
    def raised(stderr: bytes) -> None:
        raise failure(stderr, where="/d")

    check(case, raised)


@each(answers.PROBES)
def test_a_probe(case: Case) -> None:
    def probed(said: bytes) -> tuple[int, str, int, int, str]:
        found = capabilities.parse(said)
        return len(found.features), found.machine, found.free_memory, found.epoch, found.unique_id

    check(case, probed)


@each(answers.PATHS)
def test_a_path(case: Case) -> None:
    check(case, listing.normal_path)
