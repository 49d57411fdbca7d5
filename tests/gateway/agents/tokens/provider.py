"""A scripted identity provider on loopback, whose answers a test chooses and whose requests it reads."""

import json
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from tests.serving import serving

Form = dict[str, str]


class ScriptedProvider:
    """Token endpoint that answers each form by a function."""

    def __init__(self) -> None:
        self.url = ""
        self.forms: list[Form] = []
        """Forms so far."""
        self.clients: list[tuple[str, str]] = []
        """Id and secret of the client of each form."""
        self.answer: Callable[[Form], tuple[int, Any]] = lambda form: (
            200,
            {"access_token": f"token-{len(self.forms)}", "token_type": "Bearer", "expires_in": 600},
        )
        """Function that returns the status and the body: bytes, or a value for JSON."""
        self.headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = dict(scope["headers"])
        client, _, secret = b64decode(headers[b"authorization"].removeprefix(b"Basic ")).decode().partition(":")
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        self.forms.append(form)
        self.clients.append((unquote_plus(client), unquote_plus(secret)))
        status, answer = self.answer(form)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        await send({"type": "http.response.start", "status": status, "headers": self.headers})
        await send({"type": "http.response.body", "body": content})


@asynccontextmanager
async def scripted_provider() -> AsyncGenerator[ScriptedProvider]:
    """Serve a provider."""
    provider = ScriptedProvider()
    async with serving(provider) as url:
        provider.url = f"{url}/token"
        yield provider
