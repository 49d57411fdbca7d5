"""Description of the agent of another AIEF server. Version 1 has none; servers of the unreleased v2 have an endpoint
for it."""

from collections.abc import Mapping
from typing import Any

from babelgate.adapters.aief.wire import replies as w
from babelgate.adapters.kit.client.agent_name import legal_name
from babelgate.adapters.kit.json import validate
from babelgate.canonical import AgentInfo, FaultError
from babelgate.canonical.value import Json


def decode_info(answer: Json = None) -> AgentInfo:
    """Return the agent of a server. `answer` is the agent's description; without a valid one the agent gets the name
    `agent`.

    Its name is changed to a valid agent name. `upstream_name` returns the name at the server.
    """
    try:
        described = validate(w.AgentInfo, answer)
    except FaultError:
        return AgentInfo(name="agent", input_types=("*/*",), output_types=("*/*",))
    return AgentInfo(
        name=legal_name(described.name),
        description=described.description or "",
        version=described.version or "1.0.0",
        input_types=("*/*",),
        output_types=("*/*",),
        metadata={"aief": {"name": described.name}},
    )


def upstream_name(info: AgentInfo) -> str:
    """Return the agent's name on its own server. It is not used in calls, because one server has one agent."""
    description: Mapping[str, Any] = info.metadata.get("aief") or {}
    return description.get("name") or info.name
