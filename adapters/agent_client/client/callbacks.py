"""Requests of an agent for files and terminals, which the gateway answers within the folder of the agent, if the
settings allow it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.kit.json import validate
from babelgate.adapters.kit.program import ProgramRules, TerminalState, Workspace
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.printable import printable
from babelgate.canonical.value import JsonObject


def client_capabilities(rules: ProgramRules) -> JsonObject:
    """Return the `clientCapabilities` of `initialize` under the settings of an agent."""
    capabilities: JsonObject = {"elicitation": {"form": {}, "url": {}}, "session": {"notices": {}}}
    if rules.files != "none":
        capabilities["fs"] = {"readTextFile": True, "writeTextFile": rules.files == "write"}
    if rules.has_terminals:
        capabilities["terminal"] = True
    return capabilities


class Callbacks:
    """Handlers of the requests of one program. A method that the settings do not allow does not exist for it."""

    def __init__(self, workspace: Workspace, rules: ProgramRules) -> None:
        self._workspace = workspace
        self._rules = rules

    async def handle(self, method: str, params: JsonObject) -> JsonObject:
        """Return the result of a request. Raises method_not_allowed for an unknown method and for one that the settings
        do not allow, and the faults of the workspace."""
        handler = self._METHODS.get(method)
        if handler is None or not self._is_allowed(method):
            raise FaultError(FaultCode.METHOD_NOT_ALLOWED, f"Method not found: {printable(method, 100)}")
        return await handler(self, params)

    def _is_allowed(self, method: str) -> bool:
        match method:
            case "fs/read_text_file":
                return self._rules.files != "none"
            case "fs/write_text_file":
                return self._rules.files == "write"
            case _:
                return self._rules.has_terminals

    async def _read(self, params: JsonObject) -> JsonObject:
        file = validate(w.ReadFile, params)
        return {"content": await self._workspace.read_text(file.path, file.line, file.limit)}

    async def _write(self, params: JsonObject) -> JsonObject:
        file = validate(w.WriteFile, params)
        await self._workspace.write_text(file.path, file.content)
        return {}

    async def _create(self, params: JsonObject) -> JsonObject:
        wanted = validate(w.CreateTerminal, params)
        command = (wanted.command, *(wanted.args or ()))
        env = [(each.name, each.value) for each in wanted.env or ()]
        return {"terminalId": await self._workspace.start_terminal(command, env, wanted.cwd, wanted.limit)}

    async def _output(self, params: JsonObject) -> JsonObject:
        state = self._workspace.find_terminal(validate(w.TerminalParams, params).terminal_id)
        output: JsonObject = {"output": state.output, "truncated": state.is_truncated}
        return {**output, "exitStatus": _exit_status(state)} if state.has_ended else output

    async def _wait(self, params: JsonObject) -> JsonObject:
        return _exit_status(await self._workspace.wait_for_exit(validate(w.TerminalParams, params).terminal_id))

    async def _kill(self, params: JsonObject) -> JsonObject:
        await self._workspace.kill_terminal(validate(w.TerminalParams, params).terminal_id)
        return {}

    _METHODS: ClassVar[Mapping[str, Callable[[Any, JsonObject], Awaitable[JsonObject]]]] = {
        "fs/read_text_file": _read,
        "fs/write_text_file": _write,
        "terminal/create": _create,
        "terminal/output": _output,
        "terminal/wait_for_exit": _wait,
        "terminal/kill": _kill,
        "terminal/release": _kill,
    }


def _exit_status(state: TerminalState) -> JsonObject:
    members: dict[str, Any] = {"exitCode": state.exit_code, "signal": state.signal}
    return {name: value for name, value in members.items() if value is not None}
