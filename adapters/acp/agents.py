"""Agents as ACP describes them: manifests, and names that are RFC 1123 labels."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from babelgate.adapters.acp import wire as w
from babelgate.adapters.kit.client.agent_name import free_name, legal_name
from babelgate.adapters.kit.extension import MORE_REQUESTS, URI, params
from babelgate.adapters.kit.json import validate
from babelgate.canonical import AgentInfo, FaultError, Skill
from babelgate.canonical.value import JsonObject


def label(name: str) -> str:
    """An agent's name as the RFC 1123 label that the OpenAPI asks for."""
    # components.schemas.AgentName: `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`. SDK 1.0.3 takes any string, and its own tests
    # have `slow_echo`: any name is resolved, and labels are advertised.
    return re.sub(r"[_.]", "-", name)


def labels(agents: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Advertised name → name, of agents given by their names and the names that they would like to be advertised by.
    Whoever likes its name keeps it; of the others, who would share one keeps its name."""
    agents = list(agents)
    found = {name: name for name, liked in agents if liked == name}
    for name, liked in agents:
        if liked != name:
            found[name if liked in found else liked] = name
    return found


def preferred_name(info: AgentInfo) -> str:
    """That of its own ACP server, unless it is called otherwise here; else a label."""
    own = _own(info).get("name")
    return own if isinstance(own, str) and legal_name(own) == info.name else label(info.name)


def _own(info: AgentInfo) -> Mapping[str, Any]:
    return info.metadata.get("acp") or {}


def encode_agent(info: AgentInfo, advertised: str) -> w.AgentManifest:
    own = _own(info)
    metadata: JsonObject = dict(own.get("metadata") or {})
    if info.skills and not metadata.get("capabilities"):
        metadata["capabilities"] = [
            {"name": skill.name, "description": skill.description or skill.name} for skill in info.skills
        ]
    tags = list(dict.fromkeys(tag for skill in info.skills for tag in skill.tags))
    if tags and not metadata.get("tags"):
        metadata["tags"] = tags
    for key in ("created_at", "updated_at"):  # the TypeScript client takes no other offset than Z
        if isinstance(metadata.get(key), str):
            metadata[key] = metadata[key].replace("+00:00", "Z")
    described = _metadata(metadata)
    # components.schemas.Metadata.annotations: free, and the one place where an agent's extensions can be announced.
    described.annotations = {**(described.annotations or {}), URI: params(MORE_REQUESTS)}
    manifest = w.AgentManifest(
        name=advertised,
        description=info.description or own.get("description", ""),
        input_content_types=list(info.input_types) or ["*/*"],
        output_content_types=list(info.output_types) or ["*/*"],
        metadata=described,
    )
    more: JsonObject = own.get("manifest") or {}
    return manifest.model_copy(update={k: v for k, v in more.items() if k not in w.AgentManifest.model_fields})


def _metadata(given: JsonObject) -> w.Metadata:
    try:
        return w.Metadata.model_validate(given)
    except ValidationError:  # the operator's own words, in a form that clients of the protocol would refuse
        return w.Metadata()


def decode_agents(answer: object) -> list[AgentInfo]:
    """The agents of a server, under names that are names here; `upstream_name` tells its own. Raises invalid."""
    listed = validate(w.AgentsListResponse, answer)
    taken: set[str] = set()
    found: list[AgentInfo] = []
    for manifest in listed.agents:
        name = free_name(manifest.name, taken)
        taken.add(name)
        found.append(_decode_agent(manifest, name))
    return found


def is_announced(manifest: object) -> bool:
    """Whether the agent of a manifest has the Babelgate extension."""
    try:
        metadata = validate(w.AgentManifest, manifest).metadata
    except FaultError:
        return False
    return metadata is not None and URI in (metadata.annotations or {})


def upstream_name(info: AgentInfo) -> str:
    """What the agent's own server calls it."""
    return _own(info).get("name") or info.name


def _decode_agent(manifest: w.AgentManifest, name: str) -> AgentInfo:
    own: JsonObject = {
        "name": manifest.name,
        "metadata": {} if manifest.metadata is None else manifest.metadata.model_dump(exclude_none=True),
    }
    if manifest.description is None:
        own["description"] = None
    if manifest.model_extra:
        own["manifest"] = dict(manifest.model_extra)
    capabilities = (manifest.metadata.capabilities if manifest.metadata else None) or []
    tags = (manifest.metadata.tags if manifest.metadata else None) or []
    return AgentInfo(
        name=name,
        description=manifest.description or "",
        input_types=tuple(manifest.input_content_types) or ("*/*",),
        output_types=tuple(manifest.output_content_types) or ("*/*",),
        skills=tuple(
            Skill(id=legal_name(each.name), name=each.name, description=each.description, tags=tuple(tags))
            for each in capabilities
        ),
        metadata={"acp": own},
        remembers=True,  # a session is the server's own memory: the transcript is not sent again
    )
