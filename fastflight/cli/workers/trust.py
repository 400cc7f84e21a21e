"""How a front and its workers know each other, where clients have to say who they are.

Clients follow locations to workers, so a worker asks who it is as the front does, by the same files. The front asks on
behalf of those that it has authorized: it shows a token of its own, made at its start, of which the workers are told
the digest alone, over their stdin. With TLS it takes nobody for a worker who has not the server's own key. Where
clients need certificates, it has one of a CA of its own, which exists in its memory and signs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fastflight.cli.access import pem
from fastflight.cli.access_settings import AccessSettings, FrontKnown
from fastflight.client.credentials import NONE, Credentials
from fastflight.errors import RequestError
from fastflight.service.identity import ANYBODY
from fastflight.service.tokens import issued

# No token and no certificate of a book can have this name: streams are their own by name, and the front's are of many.
NAME = "\N{RIGHTWARDS ARROW}front"


@dataclass(frozen=True, slots=True)
class Trust:
    """What a front shows to its workers, and what they are told of that; None where nobody is asked."""

    credentials: Credentials = NONE
    known: FrontKnown | None = None


def trust(access: AccessSettings) -> Trust:
    """For a front with these settings. `RequestError` for files that are not good."""
    if access.tokens is None and access.tls is None:
        return Trust()
    entry, token = issued("front", ANYBODY.scopes, datetime.now(UTC))
    entry = replace(entry, name=NAME)
    if access.tls is None:
        return Trust(Credentials(token), FrontKnown(entry))
    chain = pem(access.tls.cert)
    server_name = name_in(chain)
    if access.tls.client_ca is None:
        return Trust(Credentials(token, chain, server_name=server_name), FrontKnown(entry))
    # Here alone: what it is made with takes longer to load than most commands to run.
    import trustme

    ca = trustme.CA()
    own = ca.issue_cert(common_name="front")
    certificate = b"".join(each.bytes() for each in own.cert_chain_pems)
    credentials = Credentials(token, chain, certificate, own.private_key_pem.bytes(), server_name)
    return Trust(credentials, FrontKnown(entry, ca.cert_pem.bytes().decode()))


def name_in(chain: bytes) -> str:
    """A host that the first certificate of `chain` is for."""
    # As above.
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(chain)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise RequestError(
            "the server's certificate has no alternative name, by which clients know servers", where="--tls-cert"
        ) from error
    hosts = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    if not hosts:
        raise RequestError("the server's certificate is for no host", where="--tls-cert")
    return hosts[0].replace("*", "worker")
