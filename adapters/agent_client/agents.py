"""Descriptions of the gateway and its agents for clients that initialize a connection."""

from typing import Final

from babelgate.adapters.agent_client import wire as w
from babelgate.canonical import AgentInfo
from babelgate.canonical.printable import printable
from babelgate.canonical.value import JsonObject

_TITLE: Final = 200
"""Maximum length of an agent's title in the result of `initialize`, in characters. Chosen."""


def encode_initialized(info: AgentInfo, version: str) -> JsonObject:
    """Return the result of `initialize` for a connection to an agent. `version` is that of the gateway."""
    return {
        "protocolVersion": w.PROTOCOL_VERSION,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
            "mcpCapabilities": {"http": False, "sse": False},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
            "_meta": {w.OWN: {"attach": w.ATTACH}},
        },
        "agentInfo": {"name": w.OWN, "title": printable(info.name, _TITLE), "version": version},
        "authMethods": [],
    }


def assume_agent(name: str) -> AgentInfo:
    """Return the description of an agent that the gateway starts. What it accepts is known only once it runs, so it is
    assumed to accept files of every type."""
    return AgentInfo(name=name, input_types=("text/plain", "*/*"), output_types=("text/plain", "*/*"))


def upstream_name(info: AgentInfo) -> str:
    """Return the name of an agent for itself, which no request contains."""
    return info.name
