"""Sends HTTP requests to outputs, and turns their answers into errors.

Answers with 2xx acknowledge. 400, 413 and 422 mean that the output will never take these rows. All other answers are
errors after which the rows are sent again.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import httpx

from fastflight.errors import RequestError, TransportError
from fastflight.publish.address import OutputAddress
from fastflight.publish.output import ANSWER_SECONDS, hint_for, tls_context

NEVER = (400, 413, 422)
DENIED = (401, 403)
# How long a request and its answer may take in all, however slowly they come.
TOTAL_SECONDS = 60.0
# The most that is read of an answer. Those of real outputs are far shorter.
MAX_ANSWER_BYTES = 64 * 1024
# Characters of an answer that a message quotes.
MAX_QUOTED_CHARACTERS = 200


class Answer(NamedTuple):
    """An answer, and whether it acknowledges the rows. Otherwise the output will never take them."""

    acknowledges: bool
    content: bytes


class HttpOutput:
    """The part of an `Output` that sends by HTTP. There is no lasting connection."""

    def __init__(self, address: OutputAddress, token: str) -> None:
        """`token`: the kind of token in the Authorization header, if the address has a password and no user."""
        self._address = address
        self._token = token
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        address, password = self._address, self._address.password
        self._client = httpx.AsyncClient(
            base_url=f"{'https' if address.encrypted else 'http'}://{_host(address)}:{address.port}",
            timeout=ANSWER_SECONDS,
            verify=tls_context(address) if address.encrypted else True,
            auth=httpx.BasicAuth(address.user, password) if address.user else None,
            headers={"Authorization": f"{self._token} {password}"} if password and not address.user else None,
            trust_env=False,
        )

    async def post(self, path: str, content: bytes, media_type: str, params: dict[str, str]) -> Answer:
        """Post, and return an answer with 2xx or one of `NEVER`. Other answers are errors."""
        assert self._client is not None
        label, headers = self._address.label, {"Content-Type": media_type}
        try:
            async with (
                asyncio.timeout(TOTAL_SECONDS),
                self._client.stream("POST", path, content=content, headers=headers, params=params) as answer,
            ):
                found = await _beginning(answer)
        except (httpx.HTTPError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            raise TransportError(f"it does not answer ({reason})", where=label, hint=hint_for(reason)) from error
        if answer.is_success or answer.status_code in NEVER:
            return Answer(answer.is_success, found)
        if answer.status_code in DENIED:
            hint = "Check the user, and password_file or password_env"
            raise RequestError(f"it refuses the credentials ({answer.status_code})", where=label, hint=hint)
        what = f"it answers {answer.status_code}: {quoted(found.decode(errors='replace'))}"
        raise TransportError(what, where=label, hint="See its own log")

    def check(self) -> None:
        """Do nothing: there is no connection that could be lost."""

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def quoted(text: str) -> str:
    """Return the beginning of a text from an output in one line, for a message."""
    line = " ".join(text.split())[:MAX_QUOTED_CHARACTERS]
    return "".join(character for character in line if character.isprintable())


async def _beginning(answer: httpx.Response) -> bytes:
    content = b""
    async for piece in answer.aiter_bytes():
        content += piece
        if len(content) >= MAX_ANSWER_BYTES:
            break
    return content[:MAX_ANSWER_BYTES]


def _host(address: OutputAddress) -> str:
    return f"[{address.host}]" if ":" in address.host else address.host
