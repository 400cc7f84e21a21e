"""`fastflight cert`: files that a server and its clients take, keys for their owner alone, nothing written over."""

from __future__ import annotations

import errno
import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from fastflight.cli.main import app

run = CliRunner().invoke


def make(folder: Path, *arguments: str) -> str:
    told = run(app, ["cert", *arguments, "--dir", str(folder)])
    assert told.exit_code == 0, told.stderr
    return told.stdout


def test_a_server_and_a_client_of_one_ca(tmp_path: Path) -> None:
    assert "--tls-cert" in make(tmp_path, "server", "boards.example", "10.0.0.7", "--days", "3")
    assert "token add ada --certificate" in make(tmp_path, "client", "ada")
    if os.name == "posix":
        for key in tmp_path.glob("*.key"):
            assert key.stat().st_mode & 0o777 == 0o600
    trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    for name in ("server", "ada"):
        trusted.load_cert_chain(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
    server = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    client = x509.load_pem_x509_certificate((tmp_path / "ada.pem").read_bytes())
    assert client.not_valid_after_utc - server.not_valid_after_utc > timedelta(days=86)
    assert client.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value == "ada"
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName)[0] == "boards.example"


def test_nothing_is_written_over_unless_told_to(tmp_path: Path) -> None:
    make(tmp_path, "server", "localhost")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    told = run(app, ["cert", "server", "localhost", "--dir", str(tmp_path)])
    assert told.exit_code == 1 and "the file exists already. Give --force to replace it" in told.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    make(tmp_path, "server", "localhost", "--force")
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"server.pem", "server.key"}


@pytest.mark.parametrize("written", [0, 1])
def test_where_the_disk_is_full_the_old_pair_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    made: list[int] = []

    def full(descriptor: int) -> None:
        if len(made) == written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        made.append(descriptor)

    for before in ({}, None):  # first there is nothing, not even a CA
        if before is None:
            make(tmp_path, "server", "localhost")
            before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        made.clear()
        with monkeypatch.context() as during:
            during.setattr(os, "fsync", full)
            told = run(app, ["cert", "server", "localhost", "--force", "--dir", str(tmp_path)])
        assert told.exit_code == 1 and "No space left on device" in told.stderr
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    ssl.create_default_context().load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")


@pytest.mark.skipif(os.name != "posix", reason="rights are in the mode on POSIX alone")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_nobody_else_reads_a_key_or_changes_a_file_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        make(tmp_path, "server", "localhost")
        make(tmp_path, "server", "localhost", "--force")
    finally:
        os.umask(before)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & (0o077 if path.suffix == ".key" else 0o022) == 0, path


def test_a_link_in_the_place_of_a_key_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    make(tmp_path, "server", "localhost")
    (tmp_path / "server.key").unlink()
    (tmp_path / "server.key").symlink_to(elsewhere)
    make(tmp_path, "server", "localhost", "--force")
    assert elsewhere.read_text() == "mine" and not (tmp_path / "server.key").is_symlink()


@pytest.mark.parametrize("name", ["ca", "server", "../x", "..", "a/b", ""])
def test_a_client_is_no_path_and_no_ca(tmp_path: Path, name: str) -> None:
    told = run(app, ["cert", "client", name, "--dir", str(tmp_path)])
    assert told.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_ca_is_said(tmp_path: Path) -> None:
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).write_text("-----BEGIN NOTHING-----")
    told = run(app, ["cert", "client", "ada", "--dir", str(tmp_path)])
    assert told.exit_code == 1 and "these files are not a CA and its key" in told.stderr
