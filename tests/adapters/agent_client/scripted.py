"""Scripted coding agent of the Agent Client Protocol on stdin and stdout: `python scripted.py [login|silent|exit|v2]`.

It needs only the standard library. The first word of a prompt selects what it does. It stores the prompts of each
session in `sessions.json` of its folder, so that another process can load a session.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

Wire = dict[str, Any]
OPTIONS = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]
ALWAYS = {"optionId": "always", "name": "Always allow", "kind": "allow_always"}
STORE = Path("sessions.json")


class Cancelled(Exception):
    """The client has cancelled the turn."""


class Scripted:
    def __init__(self, behavior: str) -> None:
        self.behavior = behavior
        self.session = ""
        self.mode = "code"
        self.capabilities: Wire = {}
        self.numbers = 0
        self.late: list[Wire] = []
        """Requests that came while the agent waited for an answer."""

    # Messages

    def send(self, **message: Any) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def receive(self) -> Wire:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        return json.loads(line)

    def update(self, kind: str, /, **members: Any) -> None:
        self.send(
            method="session/update", params={"sessionId": self.session, "update": {"sessionUpdate": kind, **members}}
        )

    def say(self, text: str, /, **members: Any) -> None:
        self.update("agent_message_chunk", content={"type": "text", "text": text}, **members)

    def start(self, method: str, /, **params: Any) -> str:
        self.numbers += 1
        self.send(id=f"a{self.numbers}", method=method, params={"sessionId": self.session, **params})
        return f"a{self.numbers}"

    def wait(self, *ids: str) -> list[Wire]:
        """Return the answers to requests, in their order. Raises Cancelled after the last one if the turn is
        cancelled."""
        found: dict[str, Wire] = {}
        is_cancelled = False
        while len(found) < len(ids):
            message = self.receive()
            if message.get("method") == "session/cancel":
                is_cancelled = True
            elif "method" not in message and message.get("id") in ids:
                found[message["id"]] = message
        if is_cancelled:
            raise Cancelled
        return [found[each] for each in ids]

    def ask(self, method: str, /, **params: Any) -> Wire:
        return self.wait(self.start(method, **params))[0]

    def until_cancelled(self) -> None:
        while self.receive().get("method") != "session/cancel":
            pass
        raise Cancelled

    # Methods

    def serve(self) -> None:
        while True:
            message = self.receive()
            if "id" not in message or "method" not in message:
                continue
            try:
                result = getattr(self, message["method"].replace("/", "_"), self.unknown)(message["params"])
            except RuntimeError as error:
                code, words = error.args
                self.send(id=message["id"], error={"code": code, "message": words})
            else:
                self.send(id=message["id"], result=result)

    def unknown(self, params: Wire) -> Wire:
        raise RuntimeError(-32601, "Method not found")

    def initialize(self, params: Wire) -> Wire:
        self.capabilities = params["clientCapabilities"]
        if self.behavior == "silent":
            while True:
                self.receive()
        if self.behavior == "exit":
            print("no key", file=sys.stderr)
            sys.exit(3)
        return {
            "protocolVersion": 2 if self.behavior == "v2" else 1,
            "agentCapabilities": {"loadSession": True, "promptCapabilities": {"image": True, "embeddedContext": True}},
            "agentInfo": {"name": "scripted", "version": "1"},
            "authMethods": [{"id": "login", "name": "Log in with an account"}],
        }

    def session_new(self, params: Wire) -> Wire:
        if self.behavior == "login":
            raise RuntimeError(-32000, "Authentication required")
        self.session = f"s{os.getpid()}"
        self.update(
            "available_commands_update", availableCommands=[{"name": "review", "description": "Reviews the code."}]
        )
        modes = [{"id": "code", "name": "Code"}, {"id": "plan", "name": "Plan"}]
        return {"sessionId": self.session, "modes": {"currentModeId": "code", "availableModes": modes}}

    def session_load(self, params: Wire) -> Wire:
        if params["sessionId"] not in self.stored():
            raise RuntimeError(-32602, "unknown session")
        self.session = params["sessionId"]
        for text in self.stored()[self.session]:
            self.update("user_message_chunk", content={"type": "text", "text": text})
            self.say("replayed")
        return {}

    def session_set_mode(self, params: Wire) -> Wire:
        self.mode = params["modeId"]
        return {}

    def stored(self) -> dict[str, list[str]]:
        return json.loads(STORE.read_text()) if STORE.exists() else {}

    def session_prompt(self, params: Wire) -> Wire:
        text = "".join(block.get("text", f"<{block['type']}>") for block in params["prompt"])
        stored = self.stored()
        stored.setdefault(self.session, []).append(text)
        STORE.write_text(json.dumps(stored))
        word, _, rest = params["prompt"][-1].get("text", "").partition(" ")
        try:
            return getattr(self, f"do_{word}", self.do_echo)(rest or text) or {"stopReason": "end_turn"}
        except Cancelled:
            self.say("stopped")
            return {"stopReason": "cancelled"}

    # What a prompt does

    def do_echo(self, text: str) -> None:
        self.say(text)

    def do_prompts(self, _: str) -> None:
        self.say(json.dumps(self.stored()[self.session]))

    def do_where(self, _: str) -> None:
        permissions = f"{Path.cwd().stat().st_mode & 0o777:o}"
        found = {"cwd": str(Path.cwd()), "env": dict(os.environ), "pid": os.getpid(), "mode": self.mode}
        self.say(json.dumps({**found, "permissions": permissions}))

    def do_offered(self, _: str) -> None:
        self.say(json.dumps(self.capabilities))

    def do_work(self, _: str) -> Wire:
        thought = {"type": "text", "text": "Hm."}
        self.update("agent_thought_chunk", content=thought)
        entries = [{"content": name, "priority": "high", "status": "pending"} for name in ("read", "write")]
        for index, status in ((0, "in_progress"), (0, "completed"), (1, "in_progress"), (1, "completed")):
            entries[index]["status"] = status
            self.update("plan", entries=entries)
        self.update("tool_call", toolCallId="t1", title="Edit a.py", kind="edit", rawInput={"path": "a.py"})
        self.update("tool_call_update", toolCallId="t1", status="in_progress")
        diff = {"type": "diff", "path": "/w/a.py", "oldText": "one\ntwo\n", "newText": "one\n2\n"}
        self.update("tool_call_update", toolCallId="t1", status="completed", content=[diff], rawOutput={"ok": True})
        self.update("tool_call_update", toolCallId="t2", title="Run tests", status="failed", rawOutput="1 failed")
        self.update("usage_update", used=10, size=100)
        self.update("unheard_of", a=1)
        print("a library prints this")
        self.say("Do", messageId="m1")
        self.say("ne.", messageId="m1")
        usage = {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7, "thoughtTokens": 1}
        return {"stopReason": "end_turn", "usage": usage}

    def permission(self, call: Wire, options: list[Wire]) -> str:
        return self.start("session/request_permission", toolCall=call, options=options)

    def do_ask(self, _: str) -> None:
        self.update("tool_call", toolCallId="p1", title="rm -rf build", kind="execute", status="pending")
        (answer,) = self.wait(self.permission({"toolCallId": "p1"}, OPTIONS))
        chosen = answer["result"]["outcome"].get("optionId", "cancelled")
        self.update("tool_call_update", toolCallId="p1", status="completed" if chosen == "yes" else "failed")
        self.say(f"chosen {chosen}")

    def do_ask3(self, _: str) -> None:
        call = {"toolCallId": "p1", "title": "Write a.py", "status": "in_progress"}
        self.update("tool_call", **call)
        (answer,) = self.wait(self.permission(call, [ALWAYS, *OPTIONS]))
        self.say(f"chosen {answer['result']['outcome'].get('optionId', 'cancelled')}")

    def do_ask_two(self, _: str) -> None:
        ids = [self.permission({"toolCallId": name, "title": name}, OPTIONS) for name in ("one", "two")]
        chosen = [each["result"]["outcome"].get("optionId", "cancelled") for each in self.wait(*ids)]
        self.say(f"chosen {' '.join(chosen)}")

    def do_form(self, _: str) -> None:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        answer = self.ask("elicitation/create", mode="form", message="Who?", requestedSchema=schema)
        self.say(json.dumps(answer["result"]))

    def do_read(self, path: str) -> None:
        self.tell(self.ask("fs/read_text_file", path=path), "content")

    def do_write(self, path: str) -> None:
        self.tell(self.ask("fs/write_text_file", path=path, content="written"))

    def do_run(self, command: str) -> None:
        created = self.ask("terminal/create", command="sh", args=["-c", command], outputByteLimit=8)
        if "error" in created:
            return self.tell(created)
        terminal = created["result"]
        ended = self.ask("terminal/wait_for_exit", **terminal)["result"]
        output = self.ask("terminal/output", **terminal)["result"]
        self.ask("terminal/release", **terminal)
        content = [{"type": "terminal", **terminal}]
        self.update("tool_call_update", toolCallId="t", title="Run", status="completed", content=content)
        self.say(json.dumps([ended, output["output"], output["truncated"]]))

    def do_sleep(self, _: str) -> None:
        """Start a command in a terminal, report its process id, and leave it running."""
        terminal = self.ask("terminal/create", command="sh", args=["-c", "echo $$; exec sleep 1000"])["result"]
        while not (output := self.ask("terminal/output", **terminal)["result"]["output"]):
            pass
        self.say(output.strip())

    def tell(self, answer: Wire, member: str = "") -> None:
        error = answer.get("error")
        self.say(f"error {error['code']} {error['message']}" if error else answer["result"].get(member, "done"))

    def do_hang(self, _: str) -> None:
        self.say("working")
        self.until_cancelled()

    def do_deaf(self, _: str) -> None:
        """Ignore all messages until the client closes stdin."""
        self.say("working")
        while True:
            self.receive()

    def do_crash(self, _: str) -> None:
        self.say("working")
        sys.stdout.write('{"jsonrpc": "2.0", "method": "session/up')
        sys.stdout.flush()
        os.abort()

    def do_refuse(self, _: str) -> Wire:
        raise RuntimeError(-32603, f"no model: {os.environ.get('MODEL_KEY')}")

    def do_limit(self, _: str) -> Wire:
        return {"stopReason": "max_tokens"}

    def do_big(self, size: str) -> None:
        self.say("x" * int(size))


if __name__ == "__main__":
    Scripted(sys.argv[1] if len(sys.argv) > 1 else "").serve()
