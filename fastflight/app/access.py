"""Authentication, authorization and TLS of a server, made from its settings."""

from __future__ import annotations

from dataclasses import dataclass

from fastflight.access.authenticator import Authenticator, Tls
from fastflight.access.authority import Authority
from fastflight.app.access_settings import AccessSettings, read_pem
from fastflight.app.token_file import TokenFile
from fastflight.errors import RequestError


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
    client_ca = None if settings.tls.client_ca is None else read_pem(settings.tls.client_ca)
    return Access(authority, authenticator, Tls(read_pem(settings.tls.cert), read_pem(settings.tls.key), client_ca))
