"""`fastflight cert`: files that a server and its clients take, keys for their owner alone, nothing written over."""

from __future__ import annotations

import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from fastflight.cli.main import app
from fastflight.cli.workers.trust import name_in
from fastflight.errors import RequestError

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
    assert name_in((tmp_path / "server.pem").read_bytes()) == "boards.example"


def test_nothing_is_written_over_unless_told_to(tmp_path: Path) -> None:
    make(tmp_path, "server", "localhost")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    told = run(app, ["cert", "server", "localhost", "--dir", str(tmp_path)])
    assert told.exit_code == 1 and "it is there already. Give --force to write over it" in told.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    make(tmp_path, "server", "localhost", "--force")
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"server.pem", "server.key"}


@pytest.mark.parametrize("name", ["ca", "server", "../x", "..", "a/b", ""])
def test_a_client_is_no_path_and_no_ca(tmp_path: Path, name: str) -> None:
    told = run(app, ["cert", "client", name, "--dir", str(tmp_path)])
    assert told.exit_code != 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_ca_is_said(tmp_path: Path) -> None:
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).write_text("-----BEGIN NOTHING-----")
    told = run(app, ["cert", "client", "ada", "--dir", str(tmp_path)])
    assert told.exit_code == 1 and "these are no CA" in told.stderr


def test_a_certificate_for_no_host_is_none_for_a_server(tmp_path: Path) -> None:
    make(tmp_path, "client", "ada")
    with pytest.raises(RequestError, match="no alternative name|for no host"):
        name_in((tmp_path / "ada.pem").read_bytes())
