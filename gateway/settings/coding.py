"""Settings of coding agents that the gateway starts as programs."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from babelgate.gateway.settings.fields import Period, SettingsSection


class CodingSettings(SettingsSection):
    """Rules for a coding agent that the gateway starts (`protocol: agent-client`)."""

    permissions: Literal["ask", "allow", "reject"] = "ask"
    """Treatment of a coding agent's requests for permission: `ask` makes each a question to the caller, `allow` and
    `reject` answer all of them."""
    files: Literal["none", "read", "write"] = "none"
    """Files of `cwd` that the gateway reads and writes for a coding agent: `none`, `read`, or `write` for both."""
    terminals: bool = False
    """True if the gateway runs commands in `cwd` for a coding agent."""
    mode: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Mode of the sessions of a coding agent, such as `plan`. By default its own."""
    idle: Period = 600.0
    """Time without a run after which the process of a thread is ended, in seconds or as text such as `10m`. The next
    run continues the session in another process."""
    processes: PositiveInt = 8
    """Maximum number of processes of a coding agent, one for each thread with a recent run or an open question."""
