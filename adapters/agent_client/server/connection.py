"""Handlers of the JSON-RPC methods that a client calls on its connection to an agent."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.agents import encode_initialized
from babelgate.adapters.agent_client.server.peer import ClientPeer, Id, MethodNotFound
from babelgate.adapters.agent_client.server.sessions import Sessions
from babelgate.adapters.agent_client.server.turns import Turns
from babelgate.adapters.kit.json import validate
from babelgate.adapters.kit.server.caller import Caller
from babelgate.canonical import AgentInfo, Hub
from babelgate.canonical.value import JsonObject


class AgentConnection:
    """JSON-RPC methods of one connection. Sessions are stored as threads, so a lost connection loses only the gateway's
    unanswered requests to the client."""

    def __init__(
        self, hub: Hub, who: Caller, info: AgentInfo, peer: ClientPeer, version: str, *, cancels: bool
    ) -> None:
        """Create the handlers of a connection. `cancels` is True if a disconnect of the client cancels its active runs,
        and `version` is that of the gateway."""
        self._info = info
        self._peer = peer
        self._version = version
        self._sessions = Sessions(hub, who, info)
        self._turns = Turns(hub, who, info.name, peer, self._sessions, cancels=cancels)
        self._prompts: dict[Id, str] = {}
        """Session id of each active prompt, by the JSON-RPC id of its request."""

    async def answer(self, method: str, params: JsonObject, request_id: Id) -> JsonObject:
        """Return the result of the client's JSON-RPC request. Raises MethodNotFound, RequestFailed, and the faults of
        the method."""
        handler = self._METHODS.get(method)
        if handler is None:
            raise MethodNotFound
        return await handler(self, params, request_id)

    async def note(self, method: str, params: JsonObject) -> None:
        """Handle a JSON-RPC notification: it cancels the turn of a session, or a request. Others are ignored. Raises
        invalid, not_found."""
        if method == "session/cancel":
            await self._turns.cancel(validate(w.SessionParams, params).session_id)
        elif method == "$/cancel_request":
            request_id: Any = params.get("requestId")
            session_id = self._prompts.get(request_id) if isinstance(request_id, int | str) else None
            if session_id is not None:
                await self._turns.cancel(session_id)
            else:
                await self._peer.cancel_request(request_id)

    async def _initialize(self, params: JsonObject, request_id: Id) -> JsonObject:
        capabilities = validate(w.Initialize, params).client_capabilities
        if capabilities is not None:
            self._turns.elicitation = capabilities.elicitation
            self._sessions.has_booleans = capabilities.has_booleans
        return encode_initialized(self._info, self._version)

    async def _new_session(self, params: JsonObject, request_id: Id) -> JsonObject:
        return await self._sessions.create(validate(w.NewSession, params))

    async def _load_session(self, params: JsonObject, request_id: Id) -> JsonObject:
        """Send all updates of a session as notifications, and then return the result of `session/load`."""
        session_id = validate(w.SessionParams, params).session_id
        thread = await self._sessions.find(session_id)
        for update in await self._sessions.updates(thread.thread_id):
            await self._peer.notify(w.UPDATE, {"sessionId": session_id, "update": update})
        return self._sessions.describe_options(thread)

    async def _resume_session(self, params: JsonObject, request_id: Id) -> JsonObject:
        thread = await self._sessions.find(validate(w.SessionParams, params).session_id)
        return self._sessions.describe_options(thread)

    async def _set_option(self, params: JsonObject, request_id: Id) -> JsonObject:
        return await self._sessions.set_option(validate(w.SetOption, params))

    async def _list_sessions(self, params: JsonObject, request_id: Id) -> JsonObject:
        return await self._sessions.list(validate(w.ListSessions, params))

    async def _close_session(self, params: JsonObject, request_id: Id) -> JsonObject:
        await self._turns.cancel(validate(w.SessionParams, params).session_id)
        return {}

    async def _delete_session(self, params: JsonObject, request_id: Id) -> JsonObject:
        await self._sessions.delete(validate(w.SessionParams, params).session_id)
        return {}

    async def _prompt(self, params: JsonObject, request_id: Id) -> JsonObject:
        prompt = validate(w.Prompt, params)
        self._prompts[request_id] = prompt.session_id
        try:
            return await self._turns.prompt(prompt)
        finally:
            del self._prompts[request_id]

    async def _attach(self, params: JsonObject, request_id: Id) -> JsonObject:
        attach = validate(w.Attach, params)
        self._prompts[request_id] = attach.session_id
        try:
            return await self._turns.attach(attach)
        finally:
            del self._prompts[request_id]

    _METHODS: ClassVar[Mapping[str, Callable[..., Awaitable[JsonObject]]]] = {
        "initialize": _initialize,
        "session/new": _new_session,
        "session/load": _load_session,
        "session/resume": _resume_session,
        "session/list": _list_sessions,
        "session/close": _close_session,
        "session/delete": _delete_session,
        "session/prompt": _prompt,
        "session/set_config_option": _set_option,
        w.ATTACH: _attach,
    }
