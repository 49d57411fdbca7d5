"""Conversion between models in the Messages API and agents."""

from collections.abc import Sequence

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.codec.names import PROTOCOL
from babelgate.adapters.kit.client.agent_name import free_name
from babelgate.adapters.kit.json import validate
from babelgate.canonical import AgentInfo
from babelgate.canonical.value import Json, JsonObject

_CREATED = "1970-01-01T00:00:00Z"
"""Time that the API has for a model whose time of release is not known (docs/en/api/models)."""


def encode_model(info: AgentInfo) -> JsonObject:
    """Return an agent as a model of the API. The value `babelgate` of its member `owned_by` shows the client of another
    Babelgate that the server is a gateway."""
    members: JsonObject = info.metadata.get(PROTOCOL) or {}
    name = members.get("title") or info.name
    return {
        "type": "model",
        "id": info.name,
        "display_name": name,
        "created_at": _CREATED,
        "lifecycle": "active",
        "owned_by": "babelgate",
    }


def encode_models(infos: Sequence[AgentInfo]) -> JsonObject:
    """Return agents as the list of models. It has only one page."""
    models = [encode_model(info) for info in infos]
    ids = [model["id"] for model in models] or [None]
    return {"data": models, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}


def decode_models(answer: Json) -> list[AgentInfo]:
    """Return the models in another server's list as agents, with their names changed to valid agent names. Raises
    invalid for a malformed list."""
    agents: dict[str, AgentInfo] = {}
    for model in validate(w.ListedModels, answer).data:
        name = free_name(model.id, agents)
        agents[name] = _decode_model(model, name)
    return list(agents.values())


def assume_model(model_id: str) -> AgentInfo:
    """Return an agent for a model that its server does not list. `model_id` is the model's name at the server."""
    return _decode_model(w.ListedModel(id=model_id), free_name(model_id, ()))


def upstream_name(info: AgentInfo) -> str:
    """Return the name of the agent's model at its own server."""
    members: JsonObject = info.metadata.get(PROTOCOL) or {}
    return members.get("model") or info.name


def _decode_model(model: w.ListedModel, name: str) -> AgentInfo:
    members: JsonObject = {"model": model.id}
    if model.display_name:
        members["title"] = model.display_name[:200]
    return AgentInfo(
        name=name,
        description=f"The model {model.id}",
        input_types=("text/plain", "application/json", "*/*"),
        output_types=("text/plain", "application/json"),
        metadata={PROTOCOL: members},
    )
