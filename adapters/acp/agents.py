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
    """Return an agent's name as an RFC 1123 label, which the OpenAPI document requires: `_` and `.` become `-`."""
    # components.schemas.AgentName: `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`. SDK 1.0.3 accepts any string, and its own tests
    # use `slow_echo`. So any name is resolved, and labels are advertised.
    return re.sub(r"[_.]", "-", name)


def labels(agents: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the gateway's names of the agents, by the names under which ACP callers see them. `agents` are pairs of
    the gateway's name and the preferred name of an agent.

    An agent that prefers its own name gets it. If several others prefer the same name, the first of them gets it, and
    the rest keep the gateway's names.
    """
    agents = list(agents)
    by_advertised = {name: name for name, preferred in agents if preferred == name}
    for name, preferred in agents:
        if preferred != name:
            by_advertised[name if preferred in by_advertised else preferred] = name
    return by_advertised


def preferred_name(info: AgentInfo) -> str:
    """Return the name under which ACP callers should see an agent. It is the name on the agent's own ACP server, if the
    gateway's name was made from it, and otherwise the gateway's name as a label."""
    native_name = _native_info(info).get("name")
    return native_name if isinstance(native_name, str) and legal_name(native_name) == info.name else label(info.name)


def _native_info(info: AgentInfo) -> Mapping[str, Any]:
    """Return the manifest data that the agent's own ACP server has reported. Return an empty object if the agent is on
    no ACP server."""
    return info.metadata.get("acp") or {}


def encode_agent(info: AgentInfo, advertised: str) -> w.AgentManifest:
    """Return the manifest of an agent, with the name `advertised`."""
    native = _native_info(info)
    metadata: JsonObject = dict(native.get("metadata") or {})
    if info.skills and not metadata.get("capabilities"):
        metadata["capabilities"] = [
            {"name": skill.name, "description": skill.description or skill.name} for skill in info.skills
        ]
    tags = list(dict.fromkeys(tag for skill in info.skills for tag in skill.tags))
    if tags and not metadata.get("tags"):
        metadata["tags"] = tags
    for key in ("created_at", "updated_at"):  # the TypeScript client accepts no offset other than Z
        if isinstance(metadata.get(key), str):
            metadata[key] = metadata[key].replace("+00:00", "Z")
    manifest_metadata = _metadata(metadata)
    # components.schemas.Metadata.annotations: free-form, and the only place to announce an agent's extensions.
    manifest_metadata.annotations = {**(manifest_metadata.annotations or {}), URI: params(MORE_REQUESTS)}
    manifest = w.AgentManifest(
        name=advertised,
        description=info.description or native.get("description", ""),
        input_content_types=list(info.input_types) or ["*/*"],
        output_content_types=list(info.output_types) or ["*/*"],
        metadata=manifest_metadata,
    )
    more: JsonObject = native.get("manifest") or {}
    return manifest.model_copy(update={k: v for k, v in more.items() if k not in w.AgentManifest.model_fields})


def _metadata(metadata: JsonObject) -> w.Metadata:
    """Return the metadata for a manifest. Return empty metadata if the given ones do not have the form that ACP
    requires."""
    try:
        return w.Metadata.model_validate(metadata)
    except ValidationError:  # configured by the operator in a form that clients of the protocol would reject
        return w.Metadata()


def decode_agents(answer: object) -> list[AgentInfo]:
    """Return the agents in a server's response to `GET /agents`, with names that are valid in this gateway.
    `upstream_name` returns the server's own names. Raises invalid for a malformed response."""
    response = validate(w.AgentsListResponse, answer)
    names: set[str] = set()
    infos: list[AgentInfo] = []
    for manifest in response.agents:
        name = free_name(manifest.name, names)
        names.add(name)
        infos.append(_decode_agent(manifest, name))
    return infos


def is_announced(manifest: object) -> bool:
    """Return True if a manifest announces the Babelgate extension. Return False also if the manifest is invalid."""
    try:
        metadata = validate(w.AgentManifest, manifest).metadata
    except FaultError:
        return False
    return metadata is not None and URI in (metadata.annotations or {})


def upstream_name(info: AgentInfo) -> str:
    """Return the agent's name on its own server."""
    return _native_info(info).get("name") or info.name


def _decode_agent(manifest: w.AgentManifest, name: str) -> AgentInfo:
    native: JsonObject = {
        "name": manifest.name,
        "metadata": {} if manifest.metadata is None else manifest.metadata.model_dump(exclude_none=True),
    }
    if manifest.description is None:
        native["description"] = None
    if manifest.model_extra:
        native["manifest"] = dict(manifest.model_extra)
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
        metadata={"acp": native},
        remembers=True,  # the server's session has the history, so the transcript is not sent again
    )
