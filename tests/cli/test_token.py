"""`fastflight token`, the file that it writes, and what a server refuses to read."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from fastflight.access.identity import scopes
from fastflight.access.tokens import TOKEN, Book, Certificate
from fastflight.app import token_file
from fastflight.app.token_file import TokenFile
from fastflight.cli.main import app
from fastflight.cli.token import default_file
from fastflight.errors import RequestError

run = CliRunner().invoke


def test_a_token_goes_to_stdout_alone_and_into_no_file(tmp_path: Path) -> None:
    path = tmp_path / "settings" / "tokens.json"
    added = run(
        app, ["token", "add", "ada", "--scope", "read,write:weather-*", "--expires", "90d", "--file", str(path)]
    )
    assert added.exit_code == 0 and TOKEN.fullmatch(added.stdout.strip())
    secret = added.stdout.strip()[-43:]
    assert secret not in added.stderr and secret not in path.read_text()
    if os.name == "posix":
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    listed = run(app, ["token", "list", "--file", str(path)])
    assert "read,write:weather-*" in listed.stdout and "ada" in listed.stdout
    (known,) = json.loads(run(app, ["token", "list", "--json", "--file", str(path)]).stdout)
    assert known["expired"] is False and known["name"] == "ada"
    assert not (set(known) & {"sha256", "digest", "secret"})


def test_a_token_is_written_to_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    book, out = tmp_path / "tokens.json", tmp_path / "ada.token"
    add = ["token", "add", "ada", "--scope", "read:*", "--file", str(book), "--out", str(out)]
    before = os.umask(0)
    try:
        added = run(app, add)
    finally:
        os.umask(before)
    assert (added.exit_code, added.stdout) == (0, "") and TOKEN.fullmatch(out.read_text().strip())
    assert out.read_text().strip()[-43:] not in added.stderr
    if os.name == "posix":
        assert out.stat().st_mode & 0o777 == 0o600
    first = out.read_text()
    again = run(app, add)
    assert again.exit_code == 1 and "the file exists already. Give --force to replace it" in again.stderr
    assert out.read_text() == first and len(Book.decode(book.read_bytes()).tokens) == 1
    assert run(app, [*add, "--force"]).exit_code == 0
    assert out.read_text() != first and len(Book.decode(book.read_bytes()).tokens) == 2


def test_one_is_revoked_by_its_id_and_all_by_their_name(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    for _ in range(3):
        assert run(app, ["token", "add", "ada", "--scope", "read:*", "--file", str(path)]).exit_code == 0
    first = Book.decode(path.read_bytes()).tokens[0]
    assert run(app, ["token", "revoke", first.id, "--file", str(path)]).exit_code == 0
    assert len(Book.decode(path.read_bytes()).tokens) == 2
    assert run(app, ["token", "revoke", "ada", "--file", str(path)]).exit_code == 0
    assert Book.decode(path.read_bytes()) == Book()
    gone = run(app, ["token", "revoke", "ada", "--file", str(path)])
    assert gone.exit_code == 1 and "ada: no token has this name or id" in gone.stderr


def test_a_certificate_is_granted_something_without_a_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    added = run(app, ["token", "add", "lab pc", "--certificate", "--scope", "exec:bench", "--file", str(path)])
    assert (added.exit_code, added.stdout) == (0, "")
    assert [each.name for each in Book.decode(path.read_bytes()).certificates] == ["lab pc"]


def test_a_broken_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text("{broken")
    path.chmod(0o600)
    told = run(app, ["token", "add", "ada", "--scope", "read:*", "--file", str(path)])
    assert told.exit_code == 1 and told.stdout == "" and path.read_text() == "{broken"


KILLED = """
import os, signal, sys
from pathlib import Path
from fastflight.app import token_file

def changed(book):
    os.kill(os.getpid(), signal.SIGKILL)

token_file.change(Path(sys.argv[1]), changed)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX's")
def test_a_change_that_was_killed_half_way_blocks_no_other(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    assert run(app, ["token", "add", "ada", "--scope", "read:*", "--file", str(path)]).exit_code == 0
    before = path.read_bytes()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL and path.read_bytes() == before
    assert run(app, ["token", "revoke", "ada", "--file", str(path)]).exit_code == 0
    assert Book.decode(path.read_bytes()) == Book()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tokens.json", "tokens.json.lock"]


@pytest.mark.skipif(os.name != "posix", reason="rights are in the mode on POSIX alone")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(Book().encode())
    path.chmod(mode)
    with pytest.raises(RequestError, match="others may write it, and so let themselves in. chmod 600"):
        token_file.read(path)
    path.chmod(0o644)
    assert token_file.read(path) == Book().encode()


def test_a_file_is_read_again_when_it_changed_and_not_else(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    watched = TokenFile(path)
    with pytest.raises(RequestError, match="No such file"):
        watched()
    token_file.change(path, lambda book: book)
    assert watched() == Book().encode()
    assert watched() is None
    token_file.change(path, lambda book: book)
    assert watched() == Book().encode()


@pytest.mark.skipif(os.name != "posix", reason="rights are in the mode on POSIX alone")
def test_who_may_read_the_file_may_read_it_after_a_change(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token_file.change(path, lambda book: book)
    path.chmod(0o640)
    token_file.change(path, lambda book: book)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.name != "posix", reason="pipes have names on POSIX alone")
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token_file.change(path, lambda book: book)
    watched = TokenFile(path)
    assert watched() is not None
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(RequestError, match="not a file"):
        watched()
    path.unlink()
    path.mkdir()
    with pytest.raises(RequestError, match="Is a directory|not a file"):
        watched()


@pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")
def test_by_way_of_a_link_the_file_itself_is_changed(tmp_path: Path) -> None:
    path, link = tmp_path / "tokens.json", tmp_path / "link.json"
    token_file.change(path, lambda book: book)
    link.symlink_to(path)
    watched = TokenFile(path)
    watched()
    assert run(app, ["token", "add", "ada", "--scope", "read:*", "--file", str(link)]).exit_code == 0
    seen = watched()
    assert seen is not None and [each.name for each in Book.decode(seen).tokens] == ["ada"]
    assert link.is_symlink() and not path.is_symlink()


@pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")
def test_a_link_that_leads_to_itself_is_replaced(tmp_path: Path) -> None:
    loop = tmp_path / "tokens.json"
    loop.symlink_to(loop)
    token_file.change(loop, lambda book: book.adding(Certificate("lab", scopes(["read:*"]))))
    assert [each.name for each in token_file.book(loop).certificates] == ["lab"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_where_the_disk_is_full_the_old_file_stays_and_no_token_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "tokens.json"
    assert run(app, ["token", "add", "ada", "--scope", "read:*", "--file", str(path)]).exit_code == 0
    before = path.read_bytes()

    def full(_: int) -> NoReturn:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as during:
        during.setattr(os, "fsync", full)
        for change in (["add", "eve", "--scope", "admin:*"], ["revoke", "ada"]):
            told = run(app, ["token", *change, "--file", str(path)])
            assert (told.exit_code, told.stdout) == (1, "") and os.strerror(code) in told.stderr
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    assert run(app, ["token", "revoke", "ada", "--file", str(path)]).exit_code == 0


def test_of_two_changes_at_once_one_is_made_and_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"

    def meanwhile(book: Book) -> Book:
        told = run(app, ["token", "add", "eve", "--scope", "read:*", "--file", str(path)])
        assert told.exit_code == 1 and "is changing this file" in told.stderr and told.stdout == ""
        return book.adding(Certificate("lab", scopes(["read:*"])))

    token_file.change(path, meanwhile)
    assert Book.decode(path.read_bytes()) == Book(certificates=(Certificate("lab", scopes(["read:*"])),))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
def test_where_tokens_are_kept_if_nobody_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/ada/settings")
    assert default_file() == Path("/home/ada/settings/fastflight/tokens.json")


def test_a_change_that_could_not_be_read_for_a_moment_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens.json"
    token_file.change(path, lambda book: book)
    watched = TokenFile(path)
    assert watched() is not None
    token_file.change(path, lambda book: book)  # another file: what was revoked
    with monkeypatch.context() as during:

        def refused(*_: object) -> NoReturn:
            raise OSError(errno.EMFILE, "Too many open files")

        during.setattr(os, "open", refused)
        with pytest.raises(RequestError, match="Too many open files"):
            watched()
    assert watched() == Book().encode()
    assert watched() is None
