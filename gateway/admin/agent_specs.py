"""Agents of the administration API: checks of the settings that a request contains, and their conversion into
`AgentSettings`.

A caller of the API must not gain more than the operator has allowed. So such an agent is behind a URL in one of
`admin.agent_networks`, and its headers refer to variables in `admin.agent_secrets`. A module name would execute code.
"""

import asyncio
import os
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from pydantic import SecretStr, ValidationError

from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.agent import AGENT_NAME
from babelgate.canonical.value import JsonObject
from babelgate.gateway.agents.networks import Networks, check_address
from babelgate.gateway.settings.administration import AdminSettings
from babelgate.gateway.settings.model import AgentSettings

_REFERENCE: Final = re.compile(r"(?:[A-Za-z]+ )?\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""Allowed value of a header: a reference to a variable, optionally after a scheme, such as `Bearer
${PLANNER_TOKEN}`."""
_IN_PROCESS: Final = ("python", "graph")
_OF_PROCESSES: Final = ("process", "command", "env", "cwd", "memory")
_LOOKUP: Final = 5.0
"""Maximum duration of the resolution of a host name, in seconds. Chosen."""


def check_name(name: str) -> None:
    """Check that a text is a valid name of an agent. Raises invalid."""
    if not AGENT_NAME.fullmatch(name):
        raise FaultError(
            FaultCode.INVALID,
            "An agent's name is 1 to 63 of a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends.",
        )


async def check_spec(spec: JsonObject, admin: AdminSettings) -> None:
    """Check the settings of an agent in a request, including the addresses of its servers. Raises invalid."""
    for kind in _IN_PROCESS:
        if kind in spec:
            raise FaultError(
                FaultCode.INVALID,
                f"{kind}: an agent of the administration API has a url, because the name of a module would execute "
                "code. Put this agent into the configuration file.",
            )
    for kind in _OF_PROCESSES:
        if kind in spec:
            raise FaultError(
                FaultCode.INVALID,
                f"{kind}: an agent of the administration API has a url, and its server is started elsewhere, because a "
                "command would execute a program on the gateway's machine. Put this agent into the configuration file.",
            )
    if "auth" in spec:
        raise FaultError(
            FaultCode.INVALID,
            "auth: an agent of the administration API has only headers and forward, because the secret of a provider "
            "would be stored in the database. Put this agent into the configuration file.",
        )
    if "tls" in spec:
        raise FaultError(
            FaultCode.INVALID,
            "tls: it names files of the gateway's machine. Put this agent into the configuration file.",
        )
    for url in resolve_spec(spec, admin).servers:
        await _check_host(url, admin.agent_networks)


def resolve_spec(spec: JsonObject, admin: AdminSettings) -> AgentSettings:
    """Return the settings of an agent, with the values of the variables to which its headers refer. Raises invalid."""
    headers: object = spec.get("headers", {})
    if not isinstance(headers, dict):
        raise FaultError(FaultCode.INVALID, "headers: expected an object of names and references")
    resolved = {
        name: SecretStr(_resolve(str(name), value, admin.agent_secrets))
        for name, value in cast("JsonObject", headers).items()
    }
    try:
        settings = AgentSettings.model_validate({**spec, "headers": resolved}).restrict(admin.agent_networks)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = f"there is no such key; there are {', '.join(AgentSettings.model_fields)}"
        raise FaultError(FaultCode.INVALID, f"{where}: {message}" if where else message) from None
    if not all("://" in each for each in settings.card.keys):
        words = "card.keys: an agent of the administration API has URLs of key sets, because files are the operator's"
        raise FaultError(FaultCode.INVALID, f"{words}. Put this agent into the configuration file.")
    return settings


def _resolve(name: str, value: object, secrets: Sequence[str]) -> str:
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        words = f"headers.{name[:60]}: expected a reference to a variable, such as Bearer ${{PLANNER_TOKEN}}"
        raise FaultError(FaultCode.INVALID, f"{words}. A secret itself would be stored in the database.")
    if match[1] not in secrets:
        words = f"headers.{name[:60]}: the variable {match[1]} is not in admin.agent_secrets"
        raise FaultError(FaultCode.INVALID, f"{words}. Add it there, or use one of: {', '.join(secrets) or 'none'}.")
    if match[1] not in os.environ:
        raise FaultError(FaultCode.INVALID, f"headers.{name[:60]}: the variable {match[1]} is not set on this node")
    return cast("str", value).replace(f"${{{match[1]}}}", os.environ[match[1]])


async def _check_host(url: str, networks: Networks) -> None:
    """Check that all addresses of a URL's host are in the networks. Raises invalid."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        loop = asyncio.get_running_loop()
        found = await asyncio.wait_for(loop.getaddrinfo(host, parts.port, type=socket.SOCK_STREAM), _LOOKUP)
    except (OSError, TimeoutError, UnicodeError):
        raise FaultError(FaultCode.INVALID, f"url: the host {host[:100]!r} cannot be resolved") from None
    for address in {cast("Any", entry[4])[0] for entry in found}:
        try:
            check_address(address, networks)
        except PermissionError as error:
            raise FaultError(FaultCode.INVALID, f"url: {error.strerror}") from None


def merge_agents(
    configured: Mapping[str, AgentSettings], added: Mapping[str, AgentSettings]
) -> dict[str, AgentSettings]:
    """Return the agents of the configuration and the `added` ones of the administration API. If both have a name, that
    of the configuration is used."""
    return {**configured, **{name: each for name, each in added.items() if name not in configured}}
