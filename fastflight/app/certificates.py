"""Makes a certificate authority (CA), and certificates for a server and its clients; all in PEM.

Needs the extra `tls`. New keys are EC P-256; a CA of the user's own may have an RSA key. Certificates follow RFC 5280.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ORGANIZATION = "fastflight"
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
# The clock of a client may be slow: a certificate is valid from this long ago.
SKEW = timedelta(days=1)
# RFC 5280, 4.1.2.5: "no well-defined expiration date". A CA that must not be used any more is deleted.
NEVER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
# A host name as DNS has it, perhaps with a wildcard as its first label.
HOST_NAME = re.compile(r"(?=.{1,253}$)(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")


class CertificateAuthority:
    """A CA with its key. `create` makes one, `load` reads one."""

    def __init__(self, certificate: x509.Certificate, key: _Key) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls) -> Self:
        """Make a CA that does not expire."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"{ORGANIZATION} CA")
        builder = _builder(name, name, key, NEVER).add_extension(x509.BasicConstraints(True, 0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Read a CA. `ValueError` or `TypeError` if these are no CA, or do not belong together."""
        read, secret = x509.load_pem_x509_certificate(certificate), serialization.load_pem_private_key(key, None)
        if (
            not isinstance(secret, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
            or read.public_key() != secret.public_key()
        ):
            raise ValueError("the key is not that of the certificate")
        if not read.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            raise ValueError("the certificate is not that of a CA")
        return cls(read, secret)

    @property
    def pem(self) -> tuple[bytes, bytes]:
        """The certificate and the key."""
        return self._certificate.public_bytes(serialization.Encoding.PEM), _private_pem(self._key)

    def issue(self, hosts: Sequence[str], common_name: str | None, until: datetime) -> tuple[bytes, bytes]:
        """Make a certificate and its key: for a server at `hosts` (names and addresses), or a client's with a name.

        `ValueError` for what is neither a host name nor an address.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(common_name), self._certificate.subject, key, until)
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(map(_host, hosts)), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _private_pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str | None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION)]
    if common_name is not None:
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    return x509.Name(attributes)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    name = text if text.isascii() else text.encode("idna").decode()
    if not HOST_NAME.fullmatch(name):
        raise ValueError(f"{text!r} is neither a host name nor an address")
    return x509.DNSName(name)


def _private_pem(key: _Key) -> bytes:
    encoding = serialization.Encoding.PEM
    return key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
