"""What clients' certificates are called: by both edges alike, and nothing that somebody else could be called, too."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyarrow import flight

from fastflight.access.identity import scopes
from fastflight.access.tokens import CERTIFICATE_NAME, OTHER_KINDS, Book, Certificate
from fastflight.gateway.http.connections import certificate_name

from .conftest import SOON
from .test_authentication import CA, SERVER, GuardedServer, act, guarded, showing, tls

CA_KEY = serialization.load_pem_private_key(CA.private_key_pem.bytes(), None)
CA_CERTIFICATE = x509.load_pem_x509_certificate(CA.cert_pem.bytes())
GRANTED = scopes(["read:demo"])


def common(*names: str) -> list[x509.NameAttribute]:
    return [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]


OTHER = x509.DirectoryName(x509.Name(common("ada")))
DNS, EMAIL, URI = x509.DNSName("ada"), x509.RFC822Name("ada@example.org"), x509.UniformResourceIdentifier("urn:ada")
V4, V6 = (x509.IPAddress(ipaddress.ip_address(text)) for text in ("10.0.0.7", "fd00::7"))
LONG = "x" * 64


@dataclass(frozen=True)
class CertificateCase:
    """The names of a certificate; what it is called, or nothing that can be granted anything."""

    names: list[x509.NameAttribute]
    alternative: list[x509.GeneralName]
    called: str


CASES = {
    "nothing": CertificateCase([], [], ""),
    "no common name": CertificateCase([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "ada")], [], ""),
    "two common names": CertificateCase(common("ada", "eve"), [], "ada"),
    "the longest": CertificateCase(common(LONG), [], LONG),
    "a wildcard": CertificateCase(common("*"), [], "*"),
    "a look-alike": CertificateCase(common("\N{CYRILLIC SMALL LETTER A}da"), [], ""),
    "a NUL": CertificateCase(common("ada\0eve"), [], ""),
    "a NUL in a host": CertificateCase(common("ada"), [x509.DNSName("ada\0eve")], ""),
    "an arrow": CertificateCase(common("\N{RIGHTWARDS ARROW}front"), [], ""),
    "what gRPC calls others": CertificateCase(common(OTHER_KINDS), [], ""),
    "a host": CertificateCase(common("eve"), [DNS], "ada"),
    "an address": CertificateCase(common("eve"), [EMAIL, DNS], "ada@example.org"),
    "a URI": CertificateCase(common("eve"), [URI, DNS], "urn:ada"),
    "IPv4": CertificateCase(common("eve"), [V4, DNS], "10.0.0.7"),
    "IPv6": CertificateCase(common("eve"), [V6], "fd00::7"),
    "another kind": CertificateCase(common("ada"), [OTHER], ""),
    "another kind first": CertificateCase(common("ada"), [OTHER, DNS], ""),
}


def issued(case: CertificateCase) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(CA_CERTIFICATE.subject, x509.Name(case.names), key.public_key(), 1)
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    if case.alternative:
        made = made.add_extension(x509.SubjectAlternativeName(case.alternative), False)
    assert isinstance(CA_KEY, ec.EllipticCurvePrivateKey)
    chain = made.sign(CA_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.PrivateFormat.PKCS8
    return chain, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


@pytest.fixture(scope="module")
def server() -> Iterator[GuardedServer]:
    """One that knows by name all that can be known, and eve."""
    with guarded(tls(CA)) as server:
        names = {"eve", "ada", *(case.called for case in CASES.values())} - {""}
        server.desk.change(Book(certificates=tuple(Certificate(name, GRANTED) for name in names)))
        yield server


def told_by_tls(chain: bytes, key: bytes, folder: Path) -> str:
    """What the gateway is told after a handshake."""
    at_server, at_client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    SERVER.configure_cert(at_server)
    at_server.verify_mode = ssl.CERT_REQUIRED
    (folder / "client.pem").write_bytes(chain + key)
    at_client.load_cert_chain(folder / "client.pem")
    for context in (at_server, at_client):
        CA.configure_trust(context)
    told: list[str] = []
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with closing(at_server.wrap_socket(ours, server_side=True)) as proven:
            told.append(certificate_name(proven))  # type: ignore[arg-type]

    thread = threading.Thread(target=serve)
    thread.start()
    with closing(at_client.wrap_socket(theirs, server_hostname="127.0.0.1")):
        thread.join(SOON)
    return told[0]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_certificate_is_called_the_same_by_both_edges(
    case: CertificateCase, server: GuardedServer, tmp_path: Path
) -> None:
    chain, key = issued(case)
    roots = CA.cert_pem.bytes()
    by_http = told_by_tls(chain, key, tmp_path)
    known = by_http if CERTIFICATE_NAME.fullmatch(by_http) and by_http != OTHER_KINDS else ""
    with server.client(tls_root_certs=roots, cert_chain=chain, private_key=key) as client:
        try:
            (told,) = act(client, showing(None), "identity")
        except flight.FlightUnauthenticatedError:
            assert (known, case.called) == ("", "")
        else:
            assert json.loads(told)["name"] == known == case.called


def test_a_token_that_is_wrong_is_not_made_good_by_a_certificate(server: GuardedServer) -> None:
    chain, key = issued(CASES["a host"])
    with server.client(tls_root_certs=CA.cert_pem.bytes(), cert_chain=chain, private_key=key) as client:
        assert act(client, showing(None), "identity")
        for wrong in ("Bearer ff_wrong", "Basic !!!", "ada"):
            with pytest.raises(flight.FlightUnauthenticatedError):
                act(client, showing(wrong), "identity")


def test_two_tokens_are_no_proof_even_where_both_are_good() -> None:
    with guarded() as server, server.client() as client:
        good = f"Bearer {server.desk.issue('ada', 'read:demo')}".encode()
        for values in ([good, good], [good, b"Bearer ff_wrong"]):
            options = flight.FlightCallOptions(SOON, headers=[(b"authorization", value) for value in values])
            with pytest.raises((flight.FlightUnauthenticatedError, pa.ArrowException)):
                act(client, options, "identity")
