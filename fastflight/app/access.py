"""Authentication, authorization and TLS of a server, made from its settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastflight.access.authenticator import Authenticator, Tls
from fastflight.access.authority import Authority
from fastflight.app.access_settings import AccessSettings
from fastflight.app.token_file import TokenFile
from fastflight.errors import RequestError

# A certificate chain has some kilobytes, a bundle of CAs some hundred.
MAX_PEM_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Access:
    """What each edge of a server needs. Without an `authenticator`, every caller is `ANYBODY`."""

    authority: Authority
    authenticator: Authenticator | None = None
    tls: Tls | None = None


def access_of(settings: AccessSettings, authority: Authority) -> Access:
    """Read the files that `settings` name. `RequestError` names the one that is missing or wrong."""
    authenticator = None
    if settings.tokens is not None:
        try:
            authenticator = Authenticator(TokenFile(settings.tokens))
        except RequestError as error:
            if str(settings.tokens) in error.where:
                raise
            where = f"{settings.tokens}: {error.where}" if error.where else str(settings.tokens)
            raise RequestError(error.what, where=where, hint=error.hint) from error
    if settings.tls is None:
        return Access(authority, authenticator)
    client_ca = None if settings.tls.client_ca is None else pem(settings.tls.client_ca)
    return Access(authority, authenticator, Tls(pem(settings.tls.cert), pem(settings.tls.key), client_ca))


def pem(path: Path) -> bytes:
    """Read a PEM file. `RequestError` if it cannot be read or is no PEM."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path)) from error
    if len(content) > MAX_PEM_BYTES or b"-----BEGIN " not in content:
        raise RequestError("not a PEM file", where=str(path), hint="It begins with -----BEGIN")
    return content
