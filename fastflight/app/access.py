"""Authentication, authorization and TLS of a server, made from its settings."""

from __future__ import annotations

from dataclasses import dataclass

from fastflight.access.authenticator import Authenticator, Tls
from fastflight.access.authority import Authority
from fastflight.app.config import AuthTable, TlsTable
from fastflight.app.key_files import read_pem
from fastflight.app.token_file import TokenFile
from fastflight.errors import RequestError


@dataclass(frozen=True, slots=True)
class Access:
    """What each edge of a server needs. Without an `authenticator`, every caller is `ANYBODY`."""

    authority: Authority
    authenticator: Authenticator | None = None
    tls: Tls | None = None


def access_of(auth: AuthTable | None, tls: TlsTable | None, authority: Authority) -> Access:
    """Read the files that the settings name. `RequestError` names the one that is missing or wrong."""
    authenticator = None
    if auth is not None:
        try:
            authenticator = Authenticator(TokenFile(auth.tokens))
        except RequestError as error:
            if str(auth.tokens) in error.where:
                raise
            where = f"{auth.tokens}: {error.where}" if error.where else str(auth.tokens)
            raise RequestError(error.what, where=where, hint=error.hint) from error
    if tls is None:
        return Access(authority, authenticator)
    client_ca = None if tls.client_ca is None else read_pem(tls.client_ca)
    return Access(authority, authenticator, Tls(read_pem(tls.cert), read_pem(tls.key), client_ca))
