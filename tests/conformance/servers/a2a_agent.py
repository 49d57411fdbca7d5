"""Agent of the scripted A2A servers, in terms of A2A 1.0: tasks, events, access control and their violations."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import httpx

from tests.conformance.servers.kit import ScriptedServer

TERMINAL: Final = frozenset({"COMPLETED", "FAILED", "CANCELED", "REJECTED"})
INTERRUPTED: Final = frozenset({"INPUT_REQUIRED", "AUTH_REQUIRED"})
OPEN: Final = INTERRUPTED | {"SUBMITTED", "WORKING"}
AUTH_TEXT: Final = "Sign in, please."
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


def agent_triggers() -> dict[str, str]:
    """Return the trigger texts. The first word of a text selects what the agent does."""
    return {
        "plain": "Hello",
        "stream": "stream one two three",
        "question": "ask",
        "auth": "auth",
        "fail": "fail",
        "reject": "reject",
        "long": "long",
        "files": "files",
        "data": "data",
        "message": "message",
    }


class Refused(Exception):
    """Protocol error; its argument is the reason."""


@dataclass(slots=True, eq=False)
class Task:
    id: str
    context: str
    owner: str
    binding: str
    word: str
    state: str = "SUBMITTED"
    message: dict[str, Any] | None = None
    at: datetime = _START
    artifacts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    readers: list["asyncio.Queue[Any]"] = field(default_factory=list["asyncio.Queue[Any]"])
    configs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    deleted_configs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Deleted configs that events are still pushed to, as a violation."""
    reads: int = 0

    @property
    def is_ended(self) -> bool:
        return self.state in TERMINAL


class Agent(ScriptedServer):
    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.is_bare = violation.startswith("bare")
        """True if the agent declares no streams, no push notifications and no extended card."""
        self.tasks: dict[str, Task] = {}
        self.clock = _START
        self.in_flight: dict[str, int] = {}
        """Number of concurrent messages by context."""
        self.pushing: set[asyncio.Task[None]] = set()

    # Sending

    async def send(self, params: Mapping[str, Any], owner: str, binding: str) -> dict[str, Any]:
        message = self._checked_message(params)
        configuration: dict[str, Any] = params.get("configuration") or {}
        if self.word_of(message) == "message":
            return {"message": self._bare_message(message)}
        if self.does("one of three concurrent messages is lost"):
            await self._reject_third(message)
        task = self._task_for(message, owner, binding)
        if config := configuration.get("taskPushNotificationConfig"):
            self._store_config(task, config)
        self._run(task, message)
        at_once = configuration.get("returnImmediately") is True
        if task.word == "fail" and self.does("a failed task stays working"):
            at_once = True
        if not at_once or self.does("returnImmediately is ignored"):
            await self._wait_until_settled(task)
        length = None if self.does("history is not limited in answers") else configuration.get("historyLength")
        result = self.view(task, length)
        if self.does("an answer before the end") and task.is_ended and task.word == "Hello":
            result["status"]["state"] = "TASK_STATE_WORKING"
        if self.does("the context is not inferred") and "taskId" in message and "contextId" not in message:
            result["contextId"] = str(uuid4())
        if self.does("an answer of two kinds"):
            return {"task": result, "message": self._agent_message("Both.")}
        return {"task": result}

    async def _reject_third(self, message: Mapping[str, Any]) -> None:
        context = str(message.get("contextId", uuid4()))
        self.in_flight[context] = self.in_flight.get(context, 0) + 1
        try:
            await asyncio.sleep(0.1)
            if self.in_flight[context] > 2:
                raise Refused("INTERNAL")
        finally:
            self.in_flight[context] -= 1

    async def _wait_until_settled(self, task: Task) -> None:
        """Wait until the task has ended or needs input."""
        if task.state in ("SUBMITTED", "WORKING"):
            queue = self._add_reader(task)
            while task.state in ("SUBMITTED", "WORKING"):
                await queue.get()

    def _checked_message(self, params: Mapping[str, Any]) -> dict[str, Any]:
        message: Any = params.get("message")
        if not isinstance(message, dict):
            raise Refused("INTERNAL" if self.does("no message is a failure") else "INVALID_PARAMS")
        checked: dict[str, Any] = message  # pyright: ignore[reportUnknownVariableType]
        self.raise_unless("messageId is ignored", Refused("INVALID_PARAMS"), when=not checked.get("messageId"))
        if checked.get("role") != "ROLE_USER" and not self.does("the role is ignored"):
            raise Refused("INVALID_PARAMS")
        parts: Any = checked.get("parts")
        if not isinstance(parts, list):
            raise Refused("INTERNAL" if self.does("wrong types are a failure") else "INVALID_PARAMS")
        if not parts:
            self.raise_unless("no parts are accepted", Refused("INVALID_PARAMS"))
            checked["parts"] = [{"text": "Hello"}]
        for part in checked["parts"]:
            self._check_part(part)
        self.raise_if("unknown members are refused", Refused("INVALID_PARAMS"), when="babelgateFuture" in checked)
        self.raise_if("deep JSON is a failure", Refused("INTERNAL"), when="deep" in (checked.get("metadata") or {}))
        self.raise_if("large texts are refused", Refused("INVALID_PARAMS"), when=len(str(checked["parts"])) > 100_000)
        return checked

    def _check_part(self, part: dict[str, Any]) -> None:
        if len({"text", "raw", "url", "data"} & part.keys()) != 1:
            self.raise_unless("empty parts are accepted", Refused("INVALID_PARAMS"))
            part["text"] = "Hello"
        self.raise_if("data parts are a failure", Refused("INTERNAL"), when="data" in part)
        if "unheard-of" in part.get("mediaType", "") and self.does("strange files are a failure"):
            raise Refused("INTERNAL")
        if "octet-stream" in part.get("mediaType", "") and self.does("files are refused"):
            raise Refused("CONTENT_TYPE_NOT_SUPPORTED")
        if "text" in part:
            part["text"] = self.ascii_if("ASCII only", part["text"])

    @staticmethod
    def word_of(message: Mapping[str, Any]) -> str:
        return next((str(part["text"]) for part in message["parts"] if part.get("text")), "").partition(" ")[0]

    def _task_for(self, message: Mapping[str, Any], owner: str, binding: str) -> Task:
        id, context = message.get("taskId"), message.get("contextId")
        if id is not None:
            if id not in self.tasks and self.does("tasks are created under ids of callers"):
                return self._create_task(id, context, owner, binding, message)
            task = self.task_of(id, owner, "any caller's task accepts messages")
            self.raise_unless("ended tasks accept messages", Refused("UNSUPPORTED_OPERATION"), when=task.is_ended)
            if context not in (None, task.context) and not self.does("contexts are not compared"):
                raise Refused("INVALID_PARAMS")
            if self.does("an answer is a new task"):
                return self._create_task(str(uuid4()), task.context, owner, binding, {"parts": [{"text": "Hello"}]})
            return task
        id = str(uuid4())
        word = self.word_of(message)
        if self.does("one id for all tasks") and word == "Hello":
            id = next((each.id for each in self.tasks.values() if each.word == word and each.owner == owner), id)
        contexts = {task.context for task in self.tasks.values()}
        if context is not None and context not in contexts and self.does("contexts of callers are exchanged"):
            context = None
        if context in contexts and self.does("contexts are never continued"):
            context = None
        return self._create_task(id, context, owner, binding, message)

    def _create_task(self, id: str, context: str | None, owner: str, binding: str, message: Mapping[str, Any]) -> Task:
        task = Task(id, context or str(uuid4()), owner, binding, self.word_of(message))
        self.tasks[id] = task
        self._stamp(task)
        return task

    # What the agent does

    def _run(self, task: Task, message: Mapping[str, Any]) -> None:
        is_answer = task.state in INTERRUPTED
        if not (is_answer and self.does("answers are not stored")):
            task.history.append({**message, "taskId": task.id, "contextId": task.context})
        if is_answer:
            self._continue(task)
            return
        match task.word:
            case "stream":
                self._work(task)
                self._stream_text(task, ["one", " two", " three"])
                self._end(task, "COMPLETED")
            case "ask":
                self._ask(task)
            case "auth":
                state = "INPUT_REQUIRED" if self.does("authentication is a question") else "AUTH_REQUIRED"
                self._status(task, state, AUTH_TEXT)
            case "fail":
                self._work(task)
                if not self.does("a failed task stays working"):
                    self._end(task, "FAILED", "" if self.does("failure without a message") else "It went wrong.")
            case "reject":
                self._end(task, "FAILED" if self.does("rejected is failed") else "REJECTED", "Not that.")
            case "long":
                self._work(task)
                self._artifact(task, {"artifactId": "answer", "parts": [{"text": "first"}]}, last=False)
            case "files":
                self._files(task, message)
            case "data":
                self._work(task)
                part: dict[str, Any] = {"text": "{}"} if self.does("data is text") else {"data": {"words": [1, None]}}
                self._artifact(task, {"artifactId": "data", "parts": [part]})
                self._end(task, "COMPLETED")
            case _:
                self._plain(task)

    def _plain(self, task: Task) -> None:
        self._work(task)
        part: dict[str, Any] = {"text": "Hello, you."}
        self.set_if("a part of two kinds", part, data={})
        self.set_if("parts have a kind", part, kind="text")
        artifact: dict[str, Any] = {"artifactId": "answer", "parts": [part]}
        self.set_if("an artifact without parts", artifact, parts=[])
        self.set_if("members in snake case", artifact, media_type="text/plain")
        self._artifact(task, artifact)
        if self.does("artifacts share an id"):
            task.artifacts.append(artifact)
        self._end(task, "COMPLETED")

    def _stream_text(self, task: Task, texts: list[str]) -> None:
        for number, text in enumerate(texts):
            append = number > 0 or self.does("the first piece is appended")
            last = number == len(texts) - 1 and not self.does("no piece is the last")
            artifact = {"artifactId": "answer", "parts": [{"text": text}]}
            self._artifact(task, artifact, append=append, last=last)

    def _files(self, task: Task, message: Mapping[str, Any]) -> None:
        self._work(task)
        for number, part in enumerate(message["parts"]):
            if "raw" in part:
                file = dict(part)
                if self.does("bytes are encoded twice"):
                    file["raw"] = base64.b64encode(file["raw"].encode()).decode()
                if self.does("files lose their names"):
                    file.pop("filename", None)
                self._artifact(task, {"artifactId": f"file-{number}", "parts": [file]})
        self._end(task, "COMPLETED")

    def _ask(self, task: Task) -> None:
        self._work(task)
        state = "AUTH_REQUIRED" if self.does("questions ask for keys") else "INPUT_REQUIRED"
        self._status(task, state, "" if self.does("a question without words") else "What is your name?")

    def _continue(self, task: Task) -> None:
        if self.does("an answer does not continue the task"):
            self._status(task, task.state, "What is your name?")
            return
        self._work(task)
        self._artifact(task, {"artifactId": "greeting", "parts": [{"text": "Hello."}]})
        self._end(task, "COMPLETED")

    # Status, artifacts and history

    def _stamp(self, task: Task) -> None:
        self.clock += timedelta(milliseconds=7)
        task.at = self.clock

    def _work(self, task: Task) -> None:
        self._status(task, "WORKING")

    def _end(self, task: Task, state: str, text: str = "") -> None:
        self._status(task, state, text)
        if task.word == "stream" and self.does("another state is stored"):
            task.state = "FAILED"

    def _status(self, task: Task, state: str, text: str = "") -> None:
        task.state = state
        task.message = self._agent_message(text) if text else None
        if task.message is not None:
            task.history.append(task.message)
        self._stamp(task)
        self._publish(task, {"statusUpdate": self.status_update(task)})

    def _agent_message(self, text: str) -> dict[str, Any]:
        role = "ROLE_USER" if self.does("the agent speaks as the user") else "ROLE_AGENT"
        return {"messageId": str(uuid4()), "role": role, "parts": [{"text": text}]}

    def _bare_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._agent_message("Just so.")
        if not self.does("a bare message without context"):
            answer["contextId"] = message.get("contextId") or str(uuid4())
        return answer

    def _artifact(self, task: Task, artifact: dict[str, Any], *, append: bool = False, last: bool = True) -> None:
        earlier = next((each for each in task.artifacts if each["artifactId"] == artifact["artifactId"]), None)
        if append and earlier is not None:
            earlier["parts"] = [*earlier["parts"], *artifact["parts"]]
        else:
            task.artifacts.append(dict(artifact))
        if append and "two" in str(artifact) and self.does("a piece is not streamed"):
            return
        update = {"taskId": task.id, "contextId": task.context, "artifact": artifact, "append": append}
        self.drop_if("artifact updates without context", update, "contextId")
        self._publish(task, {"artifactUpdate": {**update, "lastChunk": last}})

    def status_update(self, task: Task) -> dict[str, Any]:
        id = str(uuid4()) if self.does("updates of another task") and task.word == "stream" else task.id
        update = {"taskId": id, "contextId": task.context, "status": self.status(task)}
        self.drop_if("status updates without context", update, "contextId")
        return update

    def status(self, task: Task) -> dict[str, Any]:
        stamp = task.at.isoformat(timespec="milliseconds").replace("+00:00", "")
        status: dict[str, Any] = {"state": f"TASK_STATE_{task.state}"}
        status["timestamp"] = stamp if self.does("times without a zone") else f"{stamp}Z"
        if task.message is not None:
            status["message"] = {**task.message, "taskId": task.id, "contextId": task.context}
        self.set_if("states as in 0.3", status, state=task.state.lower())
        if task.word == "Hello" and task.state == "WORKING" and self.does("a status without a state"):
            del status["state"]
        return status

    def view(self, task: Task, history_length: int | None = None) -> dict[str, Any]:
        history = [self._history_entry(each) for each in task.history]
        if history_length is not None:
            newest = history[-history_length:] if history_length else []
            history = history[:history_length] if self.does("history is cut at the wrong end") else newest
        result: dict[str, Any] = {"id": task.id, "contextId": task.context, "status": self.status(task)}
        result["artifacts"] = [dict(each) for each in task.artifacts]
        result["history"] = history
        self.drop_if("no contextId", result, "contextId")
        self.set_if("metadata is a list", result, metadata=[])
        return result

    def _history_entry(self, message: Mapping[str, Any]) -> dict[str, Any]:
        entry = {"role": "ROLE_USER", **message}
        self.set_if("roles as in 0.3", entry, role="user")
        self.set_if("the user speaks as the agent", entry, role="ROLE_AGENT")
        self.drop_if("a message without its id", entry, "messageId")
        return entry

    def _add_reader(self, task: Task) -> "asyncio.Queue[Any]":
        queue: asyncio.Queue[Any] = asyncio.Queue()
        task.readers.append(queue)
        return queue

    def _publish(self, task: Task, event: dict[str, Any]) -> None:
        for number, queue in enumerate(task.readers):
            is_deaf = number > 0 and task.word == "long" and self.does("the second subscriber receives nothing")
            queue.put_nowait(None if is_deaf else event)
        for config in [*task.configs.values(), *task.deleted_configs]:
            self._push(task, config, event)

    # Streams

    async def send_streaming(
        self, params: Mapping[str, Any], owner: str, binding: str
    ) -> AsyncGenerator[dict[str, Any]]:
        """Start a task and return its events. Raises Refused before the first event."""
        self.raise_unless("bare: streams anyway", Refused("UNSUPPORTED_OPERATION"), when=self.is_bare)
        message = self._checked_message(params)
        if self.word_of(message) == "message":
            return self._one_message(message)
        self.raise_if("answers cannot be streamed", Refused("UNSUPPORTED_OPERATION"), when="taskId" in message)
        task = self._task_for(message, owner, binding)
        configuration: dict[str, Any] = params.get("configuration") or {}
        if config := configuration.get("taskPushNotificationConfig"):
            self._store_config(task, config)
        queue, start = self._add_reader(task), self.view(task)
        if task.state in INTERRUPTED:
            start["status"]["state"] = "TASK_STATE_WORKING"
        self._run(task, message)
        if task.state in ("SUBMITTED", "WORKING") and task.word == "fail":
            queue.put_nowait(None)
        return self._events(task, queue, start, is_own=True)

    async def _one_message(self, message: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        yield {"message": self._bare_message(message)}
        if self.does("a message and more"):
            yield {"message": self._bare_message(message)}

    async def subscribe(self, id: str, owner: str) -> AsyncGenerator[dict[str, Any]]:
        """Return the further events of a task. Raises Refused."""
        if self.is_bare:
            raise Refused("UNSUPPORTED_OPERATION")
        self.raise_if("unknown tasks can be subscribed to", Refused("INVALID_PARAMS"), when=id not in self.tasks)
        task = self.task_of(id, owner, "any caller's task can be subscribed to")
        if self.does("no subscriptions") or (task.is_ended and not self.does("ended tasks can be subscribed to")):
            raise Refused("UNSUPPORTED_OPERATION")
        return self._events(task, self._add_reader(task), self.view(task), is_own=False)

    async def _events(
        self, task: Task, queue: "asyncio.Queue[Any]", start: dict[str, Any], *, is_own: bool
    ) -> AsyncGenerator[dict[str, Any]]:
        try:
            if task.word == "long" and is_own and self.does("events come at the end"):
                await self._wait_until_settled(task)
            if not self.does("a stream without its task" if is_own else "a subscription without its task"):
                yield {"task": start}
            if task.word == "stream" and self.does("a message among the updates"):
                yield {"message": self._bare_message({})}
            async for event in self._follow(task, queue):
                for altered in self._alter(task, event):
                    yield altered
            if self.does("streams stay open" if is_own else "subscriptions stay open") and task.word in (
                "Hello",
                "long",
            ):
                await asyncio.Event().wait()
        finally:
            if queue in task.readers:
                task.readers.remove(queue)
            wrong = "a disconnected reader cancels the task" if is_own else "a disconnected subscriber cancels the task"
            if not task.is_ended and self.does(wrong):
                task.state = "CANCELED"

    async def _follow(self, task: Task, queue: "asyncio.Queue[Any]") -> AsyncGenerator[dict[str, Any]]:
        if task.is_ended and queue.empty():
            return
        while (event := await queue.get()) is not None:
            yield event
            if queue.empty() and task.state not in ("SUBMITTED", "WORKING"):
                return

    def _alter(self, task: Task, event: dict[str, Any]) -> list[dict[str, Any]]:
        state = str(event.get("statusUpdate", {}).get("status", {}).get("state", "")).removeprefix("TASK_STATE_")
        if state == "CANCELED" and self.does("the cancel is not streamed"):
            return []
        if state == "INPUT_REQUIRED" and self.does("the question is not streamed"):
            return []
        if state in TERMINAL and task.word == "Hello" and self.does("a stream without its end"):
            return []
        if state == "FAILED" and self.does("a failure is streamed as success"):
            changed = {**event["statusUpdate"], "status": {"state": "TASK_STATE_COMPLETED"}}
            return [{"statusUpdate": changed}]
        if state == "FAILED" and self.does("a failure is streamed as a rejection"):
            return [{"statusUpdate": {**event["statusUpdate"], "status": {"state": "TASK_STATE_REJECTED"}}}]
        if state in TERMINAL and task.word == "Hello" and self.does("two ends"):
            return [event, event]
        if state in TERMINAL and task.word == "stream" and self.does("the end is sent twice"):
            return [event, event]
        if state in TERMINAL and task.word == "stream" and self.does("an artifact after the end"):
            late = {"artifactId": "late", "parts": [{"text": "late"}]}
            task.artifacts.append(late)
            return [event, {"artifactUpdate": {"taskId": task.id, "contextId": task.context, "artifact": late}}]
        if "artifactUpdate" in event and task.word == "Hello" and self.does("an event of two kinds"):
            return [{**event, "statusUpdate": self.status_update(task)}]
        return [event]

    # Tasks by their ids

    def task_of(self, id: Any, owner: str, open_to_all: str = "", unknown: str = "") -> Task:
        """Return the caller's task. `open_to_all` and `unknown` are violations. Raises Refused."""
        task = self.tasks.get(id) if isinstance(id, str) else None
        if task is None or (task.owner != owner and not (open_to_all and self.does(open_to_all))):
            raise Refused("INVALID_PARAMS" if unknown and self.does(unknown) else "TASK_NOT_FOUND")
        return task

    def get(self, params: Mapping[str, Any], owner: str, binding: str) -> dict[str, Any]:
        id = params.get("id")
        if id is None:
            raise Refused("TASK_NOT_FOUND" if self.does("no id is no task") else "INVALID_PARAMS")
        if self.does("ids are paths") and ".." in str(id):
            return {"id": str(id), "status": {"state": "TASK_STATE_COMPLETED"}, "metadata": {"file": "root:x:0:0:root"}}
        task = self.task_of(id, owner, "any caller's task is shown", "unknown tasks are wrong parameters")
        if task.binding != binding:
            if binding == "HTTP+JSON" and self.does("REST cannot find tasks of JSON-RPC"):
                raise Refused("TASK_NOT_FOUND")
            if binding == "JSONRPC" and self.does("JSON-RPC cannot find tasks of REST"):
                raise Refused("TASK_NOT_FOUND")
        result = self.view(task, None if self.does("historyLength is ignored") else params.get("historyLength"))
        self._spoil(task, result)
        return result

    def _spoil(self, task: Task, result: dict[str, Any]) -> None:
        """Apply the violations of a task that is read."""
        task.reads += 1
        self.set_if("another task is returned", result, id=str(uuid4()))
        self.set_if("artifacts are forgotten", result, artifacts=[])
        if result.get("artifacts") and self.does("artifacts are listed twice"):
            result["artifacts"] = [*result["artifacts"], *result["artifacts"]]
        if task.is_ended and task.reads > 1 and self.does("ended tasks change"):
            result["status"]["state"] = "TASK_STATE_REJECTED"
        if task.state == "INPUT_REQUIRED" and self.does("a waiting task fails"):
            result["status"]["state"] = "TASK_STATE_FAILED"
        if task.state == "CANCELED" and self.does("cancelled tasks come back"):
            result["status"]["state"] = "TASK_STATE_COMPLETED"

    def cancel(self, params: Mapping[str, Any], owner: str) -> dict[str, Any]:
        task = self.task_of(
            params.get("id"), owner, "any caller can cancel", "unknown tasks are wrong parameters of a cancel"
        )
        if task.is_ended:
            if self.does("a refused cancel changes the task"):
                task.state = "CANCELED"
            if self.does("ended tasks are cancelled"):
                return self.view(task)
            raise Refused("TASK_NOT_CANCELABLE")
        if task.state in INTERRUPTED and self.does("waiting tasks cannot be cancelled"):
            raise Refused("TASK_NOT_CANCELABLE")
        if self.does("cancel does nothing"):
            return self.view(task)
        self._end(task, "CANCELED")
        result = self.view(task)
        self.set_if("cancel returns another task", result, id=str(uuid4()))
        return result

    # Push notifications

    def set_config(self, params: Mapping[str, Any], owner: str) -> dict[str, Any]:
        self._can_push()
        id = params.get("taskId")
        if id not in self.tasks and self.does("unknown tasks can be configured"):
            return {**params, "id": str(params.get("id", "1"))}
        task = self.task_of(id, owner, "any caller's task can be configured")
        config = self._store_config(task, params)
        if self.does("webhooks change their address"):
            return {**config, "url": "https://example.com/elsewhere"}
        if self.does("tokens are numbers"):
            return {**config, "token": 1}
        return {name: value for name, value in config.items() if name != "id" or not self.does("configs without an id")}

    def _can_push(self) -> None:
        self.raise_unless("bare: pushes anyway", Refused("PUSH_NOTIFICATION_NOT_SUPPORTED"), when=self.is_bare)

    def _store_config(self, task: Task, params: Mapping[str, Any]) -> dict[str, Any]:
        if "169.254." in str(params.get("url")) and not self.does("webhooks can have any host"):
            raise Refused("INVALID_PARAMS")
        config = {**params, "taskId": task.id, "id": params.get("id") or str(uuid4())}
        if self.does("one config a task"):
            task.configs.clear()
        if task.state == "SUBMITTED" or not self.does("later configs are not pushed"):
            task.configs[config["id"]] = config
        return config

    def get_config(self, params: Mapping[str, Any], owner: str) -> dict[str, Any]:
        self._can_push()
        task = self.task_of(params.get("taskId"), owner)
        config = task.configs.get(str(params.get("id")))
        if config is None:
            if task.configs and self.does("unknown configs are others"):
                return next(iter(task.configs.values()))
            raise Refused("TASK_NOT_FOUND")
        return {**config, "url": f"{config['url']}?"} if self.does("webhooks are read otherwise") else config

    def list_configs(self, params: Mapping[str, Any], owner: str) -> dict[str, Any]:
        self._can_push()
        task = self.task_of(params.get("taskId"), owner)
        listed = list(task.configs.values())
        return {"configs": [] if self.does("configs are not listed") else listed}

    def delete_config(self, params: Mapping[str, Any], owner: str) -> None:
        self._can_push()
        task = self.task_of(params.get("taskId"), owner)
        id = str(params.get("id"))
        self.raise_if("deleting twice is an error", Refused("TASK_NOT_FOUND"), when=id not in task.configs)
        if not self.does("deleted configs stay"):
            config = task.configs.pop(id, None)
            if config is not None and self.does("deleted configs are pushed to"):
                task.deleted_configs.append(config)

    def _push(self, task: Task, config: Mapping[str, Any], event: dict[str, Any]) -> None:
        state = str(event.get("statusUpdate", {}).get("status", {}).get("state", ""))
        is_end = state.removeprefix("TASK_STATE_") in TERMINAL
        if "example.com" in config["url"] or ":9/" in config["url"] or self.does("nothing is pushed"):
            return
        if is_end and self.does("the end is not pushed"):
            return
        headers = {"content-type": "text/plain" if self.does("pushes are text") else "application/a2a+json"}
        if "token" in config and not self.does("pushes without the token"):
            headers["x-a2a-notification-token"] = config["token"]
        if "authentication" in config and not self.does("pushes without credentials"):
            authentication = config["authentication"]
            headers["authorization"] = f"{authentication['scheme']} {authentication['credentials']}"
        body = self.push_body(task, event)
        before = list(self.pushing)

        async def post() -> None:
            await asyncio.gather(*before, return_exceptions=True)
            async with httpx.AsyncClient(trust_env=False, verify=False) as http:
                await http.post(config["url"], json=body, headers=headers)

        pushing = asyncio.get_running_loop().create_task(post())
        self.pushing.add(pushing)
        pushing.add_done_callback(self._on_pushed)

    def _on_pushed(self, pushing: asyncio.Task[None]) -> None:
        self.pushing.discard(pushing)
        if not pushing.cancelled():
            pushing.exception()  # retrieved, because the receiver of the judge may have stopped

    def push_body(self, task: Task, event: dict[str, Any]) -> Any:
        """Return the body of a push notification."""
        return self.view(task) if self.does("pushes are bare tasks") else event
