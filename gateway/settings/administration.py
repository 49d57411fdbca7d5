"""Settings of the administration API."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, field_validator
from pydantic_settings import NoDecode

from babelgate.gateway.settings.credentials import is_trusted_url
from babelgate.gateway.settings.fields import Listen, Networks, Origin, SettingsSection, Strings, parse_list


class AdminSettings(SettingsSection):
    """Administration API, below `/admin`. It needs `keys` or `issuers`, and a rule of access that allows `admin`."""

    listen: Listen | None = None
    """Separate address and port of the administration API, such as `10.0.0.5:9001`. With it, `/admin` and operators of
    the console are on this address only, and no protocol is. By default they are on the port of callers."""
    agents: bool = False
    """True if agents can be created and changed over the administration API. Their URLs must be in `agent_networks`."""
    agent_networks: Networks = ()
    """Addresses and networks in which the servers of agents from the administration API must be, such as
    `10.0.0.0/8`."""
    agent_secrets: Strings = ()
    """Secrets to which the headers and the `client_secret` of agents from the administration API may refer: names of
    environment variables, and files such as `file:/run/secrets/planner`."""
    agent_providers: Annotated[tuple[Origin, ...], NoDecode, BeforeValidator(parse_list)] = ()
    """Origins of the identity providers from which agents from the administration API may get tokens, such as
    `https://login.example.com`. The tokens of callers are sent to them."""
    agent_tls_files: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(parse_list)] = ()
    """Files that `tls` of agents from the administration API may name, by exactly this path, such as
    `/etc/babelgate/client.pem`."""

    @field_validator("agent_providers")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not is_trusted_url(origin):
                raise ValueError("an https:// origin, or an http:// origin of this machine")
        return origins
