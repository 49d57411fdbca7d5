"""A2A (Agent2Agent), 0.2.5 to 0.3 and 1.0: JSON-RPC and REST of both versions, gRPC of 1.0, agent cards, push
notifications."""

import json
from collections.abc import Sequence

from babelgate.adapters.a2a.write.webhook import Writer, Writer_0_3
from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.kit.server.rpc import RpcService
from babelgate.adapters.kit.upstream import Upstream

from .agents.interface import assume_agent
from .carries import CARRIES, EXTENDED
from .client import Client, discover, discover_signed
from .looks import looks
from .rest import REST
from .server import encode_fault, routes
from .snippets import snippets

__all__ = ("adapter", "upstream")


def _examples(base_url: str, agent: str) -> Sequence[Example]:
    url = f"{base_url}/a2a/{agent}"
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
    new = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}})
    message_0_3 = {"kind": "message", "messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "Hello"}]}
    old = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message_0_3}})
    return [
        Example("A2A 1.0", url, f"curl -s {url} -H 'A2A-Version: 1.0' -d '{new}'"),
        Example("A2A 0.3", url, f"curl -s {url} -d '{old}'"),
    ]


def _rpc() -> RpcService:
    from .server.grpc import service

    return service()


adapter = Adapter(
    name="a2a",
    title="A2A",
    versions=("0.3", "1.0"),
    prefixes=("/a2a", "/.well-known/agent-card.json", "/.well-known/agent.json"),
    open_paths=tuple(
        f"{at}/.well-known/{card}.json" for at in ("", "/a2a/{agent}") for card in ("agent-card", "agent")
    ),
    routes=routes,
    encode_fault=encode_fault,
    rpc=_rpc,
    carries=CARRIES,
    extended=dict.fromkeys(CARRIES, EXTENDED),
    examples=_examples,
    rest=REST,
    looks=looks,
    snippets=snippets,
    webhooks={"a2a-0.3": Writer_0_3, "a2a-1.0": Writer},
)

upstream = Upstream(
    protocol="a2a",
    title="A2A",
    discover=discover,
    discover_signed=discover_signed,
    client=Client,
    name_of=lambda info: info.name,
    own_path="/a2a/{agent}",
    alone=True,
    assume=assume_agent,
    options={"extension": ("on", "off")},
)
