"""Signed cards in the official A2A 1.0 SDK of Python, driven by JSON lines (see `lines`). Cards are JSON of A2A 1.0."""

import asyncio
from typing import Any

import httpx
from a2a.client import A2ACardResolver
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import create_agent_card_signer, create_signature_verifier
from google.protobuf.json_format import MessageToDict, ParseDict
from jwt import PyJWK
from lines import answer_calls


def read_card(card: Any) -> pb.AgentCard:
    return ParseDict(card, pb.AgentCard(), ignore_unknown_fields=True)


async def fetch(url: str, path: str) -> Any:
    """Return a card as the SDK's client gets it."""
    headers = {"A2A-Version": "1.0"}
    async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
        return MessageToDict(await A2ACardResolver(http, url).get_agent_card(relative_card_path=path))


async def verify(card: Any, keys: list[Any]) -> None:
    """Verify a card with a key set. Fails if no signature is valid."""
    by_kid = {key["kid"]: PyJWK.from_dict(key) for key in keys}

    def find_key(kid: str | None, jku: str | None) -> PyJWK:
        return by_kid.get(kid or "", next(iter(by_kid.values())))

    create_signature_verifier(find_key, ["ES256", "EdDSA", "RS256"])(read_card(card))


async def sign(card: Any, key: str, header: Any) -> Any:
    """Return a card with a signature by a private key in PEM."""
    return MessageToDict(create_agent_card_signer(key, header)(read_card(card)))


if __name__ == "__main__":
    asyncio.run(answer_calls({"fetch": fetch, "verify": verify, "sign": sign}, lambda _: None))
