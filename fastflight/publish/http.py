"""Sends HTTP requests to outputs, and turns their answers into errors.

Answers with 2xx acknowledge. 400, 413 and 422 mean that the output will never take these rows. All other answers are
errors after which the rows are sent again.
"""

from __future__ import annotations

import httpx

from fastflight.errors import RequestError, TransportError
from fastflight.publish.address import OutputAddress
from fastflight.publish.output import ANSWER_SECONDS, tls_context

NEVER = (400, 413, 422)
DENIED = (401, 403)
# Characters of an answer that a message quotes.
MAX_QUOTED_CHARACTERS = 200


class HttpClient:
    """Posts to one output."""

    def __init__(self, address: OutputAddress, token: str) -> None:
        """`token`: the kind of token in the Authorization header, if the address has a password and no user."""
        self._label = address.label
        self._client = httpx.AsyncClient(
            base_url=f"{'https' if address.encrypted else 'http'}://{_host(address)}:{address.port}",
            timeout=ANSWER_SECONDS,
            verify=tls_context(address) if address.encrypted else True,
            auth=httpx.BasicAuth(address.user, address.password) if address.user else None,
            headers={"Authorization": f"{token} {address.password}"} if address.password and not address.user else None,
            trust_env=False,
        )

    async def post(self, path: str, content: bytes, headers: dict[str, str], params: dict[str, str]) -> httpx.Response:
        """Post, and return an answer with 2xx or one of `NEVER`. Other answers are errors."""
        try:
            answer = await self._client.post(path, content=content, headers=headers, params=params)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise TransportError(f"it does not answer ({reason})", where=self._label, hint="Is it running?") from error
        if answer.is_success or answer.status_code in NEVER:
            return answer
        if answer.status_code in DENIED:
            hint = "Check the user, and password_file or password_env"
            raise RequestError(f"it refuses the credentials ({answer.status_code})", where=self._label, hint=hint)
        what = f"it answers {answer.status_code}: {quoted(answer)}"
        raise TransportError(what, where=self._label, hint="See its own log")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def quoted(answer: httpx.Response) -> str:
    """Return the beginning of an answer in one line, for a message."""
    text = " ".join(answer.text.split())[:MAX_QUOTED_CHARACTERS]
    return "".join(character for character in text if character.isprintable())


def _host(address: OutputAddress) -> str:
    return f"[{address.host}]" if ":" in address.host else address.host
