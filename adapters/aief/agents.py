"""The agent of another AIEF server. The protocol describes none; servers of the unreleased v2 have a page for it."""

from collections.abc import Mapping
from typing import Any

from babelgate.adapters.aief.wire import replies as w
from babelgate.adapters.kit.client.agent_name import legal_name
from babelgate.adapters.kit.json import validate
from babelgate.canonical import AgentInfo, FaultError
from babelgate.canonical.value import Json


def decode_info(answer: Json = None) -> AgentInfo:
    """Under a name that is a name here; `upstream_name` tells the server's own."""
    try:
        told = validate(w.AgentInfo, answer)
    except FaultError:
        return AgentInfo(name="agent", input_types=("*/*",), output_types=("*/*",))
    return AgentInfo(
        name=legal_name(told.name),
        description=told.description or "",
        version=told.version or "1.0.0",
        input_types=("*/*",),
        output_types=("*/*",),
        metadata={"aief": {"name": told.name}},
    )


def upstream_name(info: AgentInfo) -> str:
    """What the agent's own server calls it. It is not called by that name: one server is one agent."""
    own: Mapping[str, Any] = info.metadata.get("aief") or {}
    return own.get("name") or info.name
