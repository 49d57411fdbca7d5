"""Settings of the administration API."""

from babelgate.gateway.settings.fields import Listen, Networks, SettingsSection, Strings


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
    """Names of the environment variables to which the headers of agents from the administration API may refer."""
