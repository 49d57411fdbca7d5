"""Models as agents: those of another server, and agents as the models of this one."""

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
"""Bytes of what a server says of a model, which is shown to whoever lists models."""


def decode_models(answer: Json) -> list[AgentInfo]:
    """Under names that are names here; `upstream_name` tells the server's own. Raises invalid."""
    listed = validate(w.Models, {"data": answer} if isinstance(answer, list) else answer)
    found: dict[str, AgentInfo] = {}
    for model in listed.data:
        name = free_name(model.id, found)
        found[name] = _decode_model(model, name)
    return list(found.values())


def assume_model(called: str) -> AgentInfo:
    """Describe a model that its server does not list, by the server's own name for it."""
    return _decode_model(w.Model(id=called), free_name(called, ()))


def upstream_name(info: AgentInfo) -> str:
    """What the model's own server calls it."""
    own: Mapping[str, Any] = info.metadata.get("openai") or {}
    return own.get("model") or info.name


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
    # SPEC/model.py: `created` is there. Nobody knows when an agent was made.
    own: JsonObject = info.metadata.get("openai") or {}
    about: JsonObject = own.get("about") or {}
    made = replies.Model(id=info.name, created=0, owned_by="babelgate")
    return made.model_copy(update={**about, "id": info.name, "object": "model"})
