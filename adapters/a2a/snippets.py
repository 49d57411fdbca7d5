"""Programs that call an agent over A2A."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import curl, program

_PYTHON_1_0: Final = """\
# pip install "a2a-sdk>=1.0"
import asyncio
import os
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as a2a


async def main() -> None:
    headers = {"Authorization": f"Bearer {os.environ['<KEY>']}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        card = await A2ACardResolver(http, "<URL>/a2a/<AGENT>").get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        message = a2a.Message(
            message_id=str(uuid.uuid4()), role=a2a.ROLE_USER, parts=[a2a.Part(text="Hello")]
        )
        async for event in client.send_message(a2a.SendMessageRequest(message=message)):
            print(event)


asyncio.run(main())
"""
_PYTHON_0_3: Final = """\
# pip install "a2a-sdk>=0.3,<1.0"
import asyncio
import os
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, TextPart


async def main() -> None:
    headers = {"Authorization": f"Bearer {os.environ['<KEY>']}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        card = await A2ACardResolver(http, "<URL>/a2a/<AGENT>").get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        message = Message(
            message_id=str(uuid.uuid4()), role=Role.user, parts=[Part(root=TextPart(text="Hello"))]
        )
        async for event in client.send_message(message):
            print(event)


asyncio.run(main())
"""
_TYPESCRIPT: Final = """\
// npm install @a2a-js/sdk
import { SendMessageRequest } from "@a2a-js/sdk";
import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  createAuthenticatingFetchWithRetry,
} from "@a2a-js/sdk/client";

const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
  headers: async () => ({ Authorization: `Bearer ${process.env.<KEY>}` }),
  shouldRetryWithHeaders: async () => undefined,
});
const factory = new ClientFactory({
  transports: [new JsonRpcTransportFactory({ fetchImpl })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
});
const client = await factory.createFromUrl("<URL>/a2a/<AGENT>/", ".well-known/agent-card.json");
const message = { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text: "Hello" }] };
const result = await client.sendMessage(SendMessageRequest.fromJSON({ message }));
console.log(JSON.stringify(result));
"""


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return the snippets that call an agent: for each version, a curl command and a program with the Python SDK, and
    for the newest version also a program in TypeScript."""
    url = f"{base_url}/a2a/{agent}"
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
    new = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    message_0_3 = {"kind": "message", "messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "Hello"}]}
    old = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message_0_3}}
    return (
        curl("curl, A2A 1.0", url, new, "A2A-Version: 1.0", version="1.0"),
        program("a2a-sdk 1", "python", _PYTHON_1_0, version="1.0", url=base_url, agent=agent),
        program("@a2a-js/sdk", "typescript", _TYPESCRIPT, version="1.0", url=base_url, agent=agent),
        curl("curl, A2A 0.3", url, old, version="0.3"),
        program("a2a-sdk 0.3", "python", _PYTHON_0_3, version="0.3", url=base_url, agent=agent),
    )
