"""Messages of the Agent Client Protocol, version 1. The names are those of its schema 1.7."""

from typing import Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from babelgate.canonical.value import Json, JsonObject

SPEC: Final = "https://agentclientprotocol.com/protocol/v1/overview"

PROTOCOL_VERSION: Final = 1
"""Version that the result of `initialize` names, also for a client that requested another version."""

OWN: Final = "babelgate"
"""Key of the gateway's own members in `_meta`."""
ATTACH: Final = "_babelgate/attach"
"""Extension method of the gateway. It sends the updates of a turn again, and returns the result of the turn's
prompt."""

UPDATE: Final = "session/update"
PERMISSION: Final = "session/request_permission"
ELICITATION: Final = "elicitation/create"

SHOWN_UPDATES: Final = frozenset({"available_commands_update", "usage_update"})
"""Updates of a coding agent's session that clients of the gateway receive as the agent has sent them."""
PROMPT: Final = "session/prompt"
CANCEL: Final = "session/cancel"

Update = JsonObject
"""One `update` of a `session/update` notification. Optional members are left out."""


class Wire(BaseModel):
    """Base of the params and results that the gateway reads. Unknown members are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    meta: JsonObject | None = Field(default=None, alias="_meta")

    @property
    def gateway_members(self) -> JsonObject:
        """Members of `_meta.babelgate`, which a client sends to the gateway; empty if there are none."""
        members: Any = (self.meta or {}).get(OWN)
        return cast("JsonObject", members) if isinstance(members, dict) else {}


class Envelope(BaseModel):
    """One JSON-RPC message: a request, a notification or a response."""

    model_config = ConfigDict(extra="ignore")

    id: int | str | None = None
    method: str | None = None
    params: JsonObject | None = None
    result: Json = None
    error: JsonObject | None = None

    @property
    def is_request(self) -> bool:
        return self.method is not None and "id" in self.model_fields_set


class Elicitations(Wire):
    """Capability of a client to show forms (`form`) and pages (`url`) to its user. A member that is present means yes,
    even if it is `{}`."""

    form: JsonObject | None = None
    url: JsonObject | None = None


class OptionKinds(Wire):
    """Kinds of options that a client can show besides selections."""

    boolean: JsonObject | None = None


class SessionCapabilities(Wire):
    """Capabilities of a client that concern sessions."""

    config_options: OptionKinds | None = Field(default=None, alias="configOptions")


class ClientCapabilities(Wire):
    """Capabilities of a client that the gateway uses."""

    elicitation: Elicitations | None = None
    session: SessionCapabilities | None = None

    @property
    def has_booleans(self) -> bool:
        """True if the client shows options that are booleans."""
        kinds = None if self.session is None else self.session.config_options
        return kinds is not None and kinds.boolean is not None


class Initialize(Wire):
    """Params of `initialize`."""

    protocol_version: int = Field(default=PROTOCOL_VERSION, alias="protocolVersion")
    client_capabilities: ClientCapabilities | None = Field(default=None, alias="clientCapabilities")


class NewSession(Wire):
    """Params of `session/new`."""

    cwd: str
    mcp_servers: list[JsonObject] | None = Field(default=None, alias="mcpServers")
    additional_directories: list[str] | None = Field(default=None, alias="additionalDirectories")


class SessionParams(Wire):
    """Params of a method that names a session."""

    session_id: str = Field(alias="sessionId")


class SetOption(SessionParams):
    """Params of `session/set_config_option`."""

    config_id: str = Field(alias="configId")
    value: Json


class Attach(SessionParams):
    """Params of `_babelgate/attach`.

    - `prompt`: key of the prompt that began the turn to repeat. None means the newest turn.
    - `task`: id of a task to repeat with all of its runs, instead of one turn.
    - `skip`: number of updates to leave out at the beginning.
    """

    prompt: str | None = None
    task: str | None = None
    skip: int = Field(default=0, ge=0)


class Prompt(SessionParams):
    """Params of `session/prompt`."""

    prompt: list[JsonObject]


class ListSessions(Wire):
    """Params of `session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class Outcome(Wire):
    """User's choice in a permission request: `selected` with the id of an option, or `cancelled`."""

    outcome: str = "cancelled"
    option_id: str | None = Field(default=None, alias="optionId")


class Permission(Wire):
    """Result of `session/request_permission`."""

    outcome: Outcome


class Elicited(Wire):
    """Result of `elicitation/create`."""

    action: str = "cancel"
    content: JsonObject | None = None


class SessionUpdates(BaseModel):
    """Response to an HTTP request for a session: its id, and the updates that repeat it."""

    session_id: str = Field(alias="sessionId")
    updates: list[JsonObject]


StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


# Results that the gateway reads as a client


class AgentCapabilities(Wire):
    """Capabilities of an agent that the gateway uses. A member of `session` that is present means yes, even if it is
    `{}`."""

    load: bool = Field(default=False, alias="loadSession")
    prompt: JsonObject = Field(default_factory=dict[str, Any], alias="promptCapabilities")
    session: JsonObject = Field(default_factory=dict[str, Any], alias="sessionCapabilities")


class Initialized(Wire):
    """Result of `initialize`."""

    protocol_version: int = Field(alias="protocolVersion")
    capabilities: AgentCapabilities = Field(default_factory=AgentCapabilities, alias="agentCapabilities")
    info: JsonObject | None = Field(default=None, alias="agentInfo")
    auth_methods: list[JsonObject] = Field(default_factory=list[JsonObject], alias="authMethods")

    @property
    def is_gateway(self) -> bool:
        """True if the agent is another Babelgate."""
        return (self.info or {}).get("name") == OWN and OWN in (self.capabilities.meta or {})


class SessionState(Wire):
    """Result of `session/new`, `session/load` or `session/resume`. Only the first has the id."""

    session_id: str | None = Field(default=None, alias="sessionId")
    modes: JsonObject | None = None
    config_options: list[JsonObject] | None = Field(default=None, alias="configOptions")


class ReadFile(SessionParams):
    """Params of `fs/read_text_file`. `line` is the number of the first line, from 1, and `limit` a number of lines."""

    path: str
    line: int | None = None
    limit: int | None = None


class WriteFile(SessionParams):
    """Params of `fs/write_text_file`."""

    path: str
    content: str


class EnvVariable(Wire):
    name: str
    value: str


class CreateTerminal(SessionParams):
    """Params of `terminal/create`. `limit` is the number of bytes of output to retain."""

    command: str
    args: list[str] | None = None
    env: list[EnvVariable] | None = None
    cwd: str | None = None
    limit: int | None = Field(default=None, alias="outputByteLimit")


class TerminalParams(SessionParams):
    """Params of the other methods of a terminal."""

    terminal_id: str = Field(alias="terminalId")
