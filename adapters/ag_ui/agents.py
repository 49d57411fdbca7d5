"""Descriptions of agents in AG-UI: the capabilities that callers read, and the description that is assumed for an agent
behind a URL."""

from typing import Final

from babelgate.canonical import AgentInfo
from babelgate.canonical.value import JsonObject

_MEDIA: Final = ("image", "audio", "video")


def encode_capabilities(info: AgentInfo) -> JsonObject:
    """Return an agent's capabilities in the form of AG-UI: groups such as `tools` and `state`. The response makes no
    statement about a group that it omits."""
    identity = {"name": info.name, "type": "babelgate", "description": info.description, "version": info.version}
    accepts = {kind: any(_matches(each, kind) for each in info.input_types) for kind in _MEDIA}
    accepts |= {"pdf": any(each in ("application/pdf", "application/*", "*/*") for each in info.input_types)}
    return {
        "identity": {name: value for name, value in identity.items() if value},
        "transport": {"streaming": True, "websocket": False, "httpBinary": False},
        "tools": {"supported": True, "clientProvided": True},
        "output": {"structuredOutput": "output" in info.schemas, "supportedMimeTypes": list(info.output_types)},
        "state": {"snapshots": True, "deltas": True, "persistentState": info.stateful},
        "reasoning": {"supported": True, "streaming": True},
        "multimodal": {"input": accepts},
        "humanInTheLoop": {"supported": True, "approvals": True, "interrupts": True},
    }


def _matches(media_type: str, kind: str) -> bool:
    return media_type == "*/*" or media_type.partition("/")[0] == kind


def assume_agent(name: str) -> AgentInfo:
    """Return the description of an agent of which only the name is known, because AG-UI has no list of agents. It is
    assumed to accept files of every type."""
    return AgentInfo(name=name, input_types=("text/plain", "*/*"), output_types=("text/plain", "application/json"))


def upstream_name(info: AgentInfo) -> str:
    """Return the name of an agent on its own server, which no request contains: the URL identifies the agent."""
    return info.name
