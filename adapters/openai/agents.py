"""Conversion between models in OpenAI's API and agents."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

from babelgate.adapters.kit.client.agent_name import free_name
from babelgate.adapters.kit.json import validate
from babelgate.adapters.openai.wire import answers as w
from babelgate.adapters.openai.wire import replies
from babelgate.canonical import AgentInfo
from babelgate.canonical.value import Json, JsonObject

_MOST_BYTES: Final = 64_000
"""Maximum size of a server's description of one model, in bytes; a larger one is left out. Chosen: lists of models
repeat it to callers."""


def decode_models(answer: Json) -> list[AgentInfo]:
    """Return the models in a server's list as agents, with their names changed to valid agent names. `upstream_name`
    returns the name at the server. Raises invalid for a malformed list."""
    models = validate(w.Models, {"data": answer} if isinstance(answer, list) else answer)
    agents: dict[str, AgentInfo] = {}
    for model in models.data:
        name = free_name(model.id, agents)
        agents[name] = _decode_model(model, name)
    return list(agents.values())


def assume_model(model_id: str) -> AgentInfo:
    """Return an agent for a model that its server does not list. `model_id` is the model's name at the server."""
    return _decode_model(w.Model(id=model_id), free_name(model_id, ()))


def upstream_name(info: AgentInfo) -> str:
    """Return the name of the agent's model at its own server."""
    extra: Mapping[str, Any] = info.metadata.get("openai") or {}
    return extra.get("model") or info.name


def _decode_model(model: w.Model, name: str) -> AgentInfo:
    by = f", by {model.owned_by}" if model.owned_by else ""
    about = model.model_dump(exclude={"id", "object"}, exclude_unset=True)
    if len(to_json(about)) > _MOST_BYTES:
        about = {}
    return AgentInfo(
        name=name,
        description=f"The model {model.id}{by}",
        input_types=("text/plain", "application/json", "*/*"),
        output_types=("text/plain", "application/json"),
        metadata={"openai": {"model": model.id, **({"about": about} if about else {})}},
    )


def encode_model(info: AgentInfo) -> replies.Model:
    """Return an agent as a `Model` of the list of models. Members that the agent's own server reported, such as
    `owned_by`, replace the gateway's. The members that OpenAI's API does not have are for clients of Anthropic's, whose
    list of models has the same path."""
    # SPEC/model.py requires `created`. The gateway does not know when an agent was created.
    extra: JsonObject = info.metadata.get("openai") or {}
    about: JsonObject = extra.get("about") or {}
    encoded = replies.Model(
        id=info.name, created=0, owned_by="babelgate", display_name=info.name, created_at="1970-01-01T00:00:00Z"
    )
    return encoded.model_copy(update={**about, "id": info.name, "object": "model", "type": "model"})
