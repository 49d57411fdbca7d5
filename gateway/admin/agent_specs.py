"""Agents of the administration API: checks of the settings that a request contains, and their conversion into
`AgentSettings`.

A caller of the API must not gain more than the operator has allowed. So such an agent is behind a URL in one of
`admin.agent_networks`, and its secrets are references to those in `admin.agent_secrets`. It gets tokens only from
`admin.agent_providers`, because the token endpoint of a provider receives the tokens of callers. For TLS it names only
files in `admin.agent_tls_files`: another file may be a key with which the gateway could show another identity. A header
cannot refer to these files, so no private key can be sent. The name of a Python module is refused, because importing
the module would execute its code.
"""

import asyncio
import os
import re
import socket
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

from pydantic import SecretStr, ValidationError

from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.agent import AGENT_NAME
from babelgate.canonical.value import JsonObject
from babelgate.gateway.agents.networks import Networks, check_address
from babelgate.gateway.settings.administration import AdminSettings
from babelgate.gateway.settings.certificates import CertificateError, check_files
from babelgate.gateway.settings.model import AgentSettings, Settings
from babelgate.gateway.settings.place import keys_of
from babelgate.gateway.settings.secret_files import SecretFileError, read_secret

_REFERENCE: Final = re.compile(r"(?P<scheme>[A-Za-z]+ )?\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*|file:[^}]+)\}")
"""Pattern of a value that refers to a secret: `${NAME}` for a variable or `${file:PATH}` for a file, which a scheme
such as `Bearer` may precede."""
_FILE: Final = "file:"
_REQUESTS: Final = ("client_credentials", "exchange")
"""Keys of `auth` whose value describes a request for a token, with a `client_secret`."""
_IN_PROCESS: Final = ("python", "graph")
_OF_PROCESSES: Final = ("process", "command", "env", "cwd", "memory", "coding")
_LOOKUP: Final = 5.0
"""Maximum duration of the resolution of a host name, in seconds. Chosen."""


def check_name(name: str) -> None:
    """Check that a text is a valid name of an agent. Raises invalid if it is not."""
    if not AGENT_NAME.fullmatch(name):
        raise FaultError(
            FaultCode.INVALID,
            "An agent's name is 1 to 63 of a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends.",
        )


async def check_spec(spec: JsonObject, settings: Settings) -> None:
    """Check the settings of an agent, as a caller has sent them. Raises invalid for a wrong or unknown setting, for one
    that only the configuration file may have, and for a server, file or provider that the settings `admin.agent_…` do
    not permit."""
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
    agent = resolve_spec(spec, settings.admin)
    if (mistake := settings.find_auth_mistake(agent)) is not None:
        raise FaultError(FaultCode.INVALID, mistake)
    if agent.tls is not None:
        try:
            check_files(agent.tls)
        except CertificateError as error:
            raise FaultError(FaultCode.INVALID, f"tls.{error.key}: {error}") from None
    for url in agent.servers:
        await _check_host(url, settings.admin.agent_networks)


def resolve_spec(spec: JsonObject, admin: AdminSettings) -> AgentSettings:
    """Return the settings of an agent, with its references replaced. Raises invalid for a wrong or unknown setting, and
    for a reference, file or provider that the settings `admin.agent_…` do not permit."""
    resolved = {**spec, "headers": _resolve_headers("headers", spec.get("headers", {}), admin)}
    auth: object = spec.get("auth")
    if isinstance(auth, dict):
        resolved["auth"] = _resolve_auth(cast("JsonObject", auth), admin)
    try:
        settings = AgentSettings.model_validate(resolved).restrict(admin.agent_networks)
    except ValidationError as error:
        raise FaultError(FaultCode.INVALID, _describe(error)) from None
    if not all("://" in each for each in settings.card.keys):
        words = "card.keys: an agent of the administration API has URLs of key sets, because files are the operator's"
        raise FaultError(FaultCode.INVALID, f"{words}. Put this agent into the configuration file.")
    _check_providers(settings, admin)
    if settings.tls is not None:
        for name, path in settings.tls.paths.items():
            if path not in admin.agent_tls_files:
                words = f"tls.{name}: this file is not in admin.agent_tls_files"
                raise FaultError(FaultCode.INVALID, f"{words}. Add it there, or leave tls out.")
        settings.tls.note_files()
    return settings


def _describe(error: ValidationError) -> str:
    """Return a text about the first mistake in the settings of an agent. It does not contain the invalid value, which
    may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = (
            f"there is no such key; there are {', '.join(keys_of(('agents', 'name', *map(str, first['loc'][:-1]))))}"
        )
    return f"{where}: {message}" if where else message


def _resolve_auth(auth: JsonObject, admin: AdminSettings) -> JsonObject:
    """Return `auth` of an agent with its references replaced. Raises invalid for a reference that `admin.agent_secrets`
    does not permit."""
    resolved = dict(auth)
    if "headers" in auth:
        resolved["headers"] = _resolve_headers("auth.headers", auth["headers"], admin)
    for kind in _REQUESTS:
        request: object = auth.get(kind)
        if isinstance(request, dict) and "client_secret" in request:
            members = cast("JsonObject", request)
            secret = _resolve(f"auth.{kind}.client_secret", members["client_secret"], admin, has_scheme=False)
            resolved[kind] = {**members, "client_secret": secret}
    return resolved


def _check_providers(settings: AgentSettings, admin: AdminSettings) -> None:
    """Check that the gateway may send tokens and users to the identity providers of an agent. Raises invalid for a
    provider that is not in `admin.agent_providers`."""
    request = None if settings.auth is None else settings.auth.token_request
    if request is None:
        return
    urls = {"token_url": request.token_url}
    if settings.consent is not None:
        urls["consent.authorize_url"] = settings.consent.authorize_url
    for name, url in urls.items():
        if _origin_of(url) not in map(_origin_of, admin.agent_providers):
            words = f"{name}: its origin is not in admin.agent_providers"
            raise FaultError(FaultCode.INVALID, f"{words}. The provider gets the tokens of callers, so add it there.")


def _origin_of(url: str) -> tuple[str, str | None, int | None]:
    """Return the origin of a URL: its scheme, its host, and its port or else the default port of the scheme."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _resolve_headers(where: str, headers: object, admin: AdminSettings) -> dict[str, SecretStr]:
    if not isinstance(headers, dict):
        raise FaultError(FaultCode.INVALID, f"{where}: expected an object of names and references")
    return {name: _resolve(f"{where}.{name[:60]}", value, admin) for name, value in cast("JsonObject", headers).items()}


def _resolve(where: str, value: object, admin: AdminSettings, *, has_scheme: bool = True) -> SecretStr:
    """Return the secret to which `value` refers. `where` is the location of the value, for errors. `has_scheme` allows
    a scheme such as `Bearer` before the reference. Raises invalid, with a text that does not contain the value."""
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if match is None or (match["scheme"] and not has_scheme):
        example = "Bearer ${PLANNER_TOKEN}" if has_scheme else "${PLANNER_SECRET}"
        words = f"{where}: expected a reference to a variable or a file, such as {example}"
        raise FaultError(FaultCode.INVALID, f"{words}. A secret itself would be stored in the database.")
    name, kind = match["name"], "file" if match["name"].startswith(_FILE) else "variable"
    secret_name = name.removeprefix(_FILE)[:200]
    if name not in admin.agent_secrets:
        words = f"{where}: the {kind} {secret_name} is not in admin.agent_secrets"
        allowed = ", ".join(admin.agent_secrets) or "none"
        raise FaultError(FaultCode.INVALID, f"{words}. Add it there, or use one of: {allowed}.")
    try:
        secret = read_secret(name.removeprefix(_FILE)) if kind == "file" else os.environ[name]
    except KeyError:
        raise FaultError(FaultCode.INVALID, f"{where}: the variable {name} is not set on this node") from None
    except SecretFileError as error:
        raise FaultError(FaultCode.INVALID, f"{where}: {error}") from None
    return SecretStr(f"{match['scheme'] or ''}{secret}")


async def _check_host(url: str, networks: Networks) -> None:
    """Check that all addresses of a URL's host are in the networks. Raises invalid if one is not, or if the host cannot
    be resolved."""
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
