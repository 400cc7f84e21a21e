"""Certificates that OpenSSL and TLS accept, and what is refused."""

from __future__ import annotations

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from fastflight.app.certificates import CertificateAuthority

SOON = 20.0
TOMORROW = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority.create()


def context(purpose: ssl.Purpose, folder: Path, ca: bytes, issued: tuple[bytes, bytes]) -> ssl.SSLContext:
    made = ssl.create_default_context(purpose, cadata=ca.decode())
    (folder / "chain.pem").write_bytes(issued[0])
    (folder / "key.pem").write_bytes(issued[1])
    made.load_cert_chain(folder / "chain.pem", folder / "key.pem")
    return made


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "boards.example", "one.rack.example"])
def test_a_server_and_a_client_know_each_other(authority: CertificateAuthority, tmp_path: Path, host: str) -> None:
    ca, _ = authority.pem
    issued = authority.issue(["127.0.0.1", "::1", "boards.example", "*.rack.example"], None, TOMORROW)
    at_server = context(ssl.Purpose.CLIENT_AUTH, tmp_path, ca, issued)
    at_server.verify_mode = ssl.CERT_REQUIRED
    at_client = context(ssl.Purpose.SERVER_AUTH, tmp_path, ca, authority.issue([], "ada", TOMORROW))
    ours, theirs = socket.socketpair()
    names: list[object] = []

    def accept() -> None:
        with at_server.wrap_socket(theirs, server_side=True) as accepted:
            names.append(accepted.getpeercert())
            accepted.sendall(b"!")

    thread = threading.Thread(target=accept)
    thread.start()
    ours.settimeout(SOON)
    with at_client.wrap_socket(ours, server_hostname=host) as connected:
        greeting = connected.recv(1)
    thread.join(SOON)
    assert (greeting, "ada" in str(names)) == (b"!", True)


def test_a_server_by_another_name_is_refused(authority: CertificateAuthority, tmp_path: Path) -> None:
    ca, _ = authority.pem
    at_server = context(ssl.Purpose.CLIENT_AUTH, tmp_path, ca, authority.issue(["boards.example"], None, TOMORROW))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=ca.decode()).wrap_bio(
        incoming, outgoing, server_hostname="other.example"
    )
    server = at_server.wrap_bio(outgoing, incoming, server_side=True)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.example"):
        while True:
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    pass


def test_a_ca_is_read_again(authority: CertificateAuthority) -> None:
    again = CertificateAuthority.load(*authority.pem)
    assert again.pem == authority.pem
    issued = x509.load_pem_x509_certificate(again.issue(["boards.example"], None, TOMORROW)[0])
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.pem[0]))


def test_a_ca_of_another_program_is_taken() -> None:
    other = trustme.CA(key_type=trustme.KeyType.RSA)
    read = CertificateAuthority.load(other.cert_pem.bytes(), other.private_key_pem.bytes())
    issued = x509.load_pem_x509_certificate(read.issue([], "ada", TOMORROW)[0])
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(other.cert_pem.bytes()))


def test_what_is_no_ca_is_refused(authority: CertificateAuthority) -> None:
    leaf = authority.issue([], "ada", TOMORROW)
    for certificate, key in (leaf, (authority.pem[0], leaf[1]), (b"-----BEGIN NOTHING-----", b"")):
        with pytest.raises((ValueError, TypeError)):
            CertificateAuthority.load(certificate, key)


@pytest.mark.parametrize("host", ["", "a b", "a/b", "-", "http://a", "a..b", "1.2.3.4:80", "x" * 254])
def test_what_is_no_host_is_refused(authority: CertificateAuthority, host: str) -> None:
    with pytest.raises(ValueError):
        authority.issue([host], None, TOMORROW)
