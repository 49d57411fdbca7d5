"""Scripted server of AIEF's Agent Protocol v1."""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.message import Message
from itertools import count
from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.trigger import Trigger
from tests.conformance.servers.kit import TRACE, Answer, Request, ScriptedServer, Server, Violation, options

_SHORT: Final = 0.01
"""Duration of a step, in seconds."""
_LONG: Final = 3.0
"""Maximum time that a long step waits until a client lists it, in seconds."""

VIOLATIONS: Final = (
    Violation("a task needs a body", "task.no-body"),
    Violation("a JSON body is never empty", "task.empty-json"),
    Violation("the task's input is null", "task.input"),
    Violation("additional_input loses its members", "task.additional-input"),
    Violation("all tasks have one id", "task.own-id", ("*",)),
    Violation("get returns another task", "task.get"),
    Violation("get forgets additional_input", "task.get-same"),
    Violation("a new task has a file", "task.no-artifacts", ("list.artifacts-page",)),
    Violation("steps answer while they run", "step.completed", ("step.question", "step.failure-ends", "step.answer")),
    Violation("a step names another task", "step.task"),
    Violation("the step's input is null", "step.input"),
    Violation("no output", "step.output", ("step.question-output", "step.answer", "step.failure")),
    Violation("a step needs a body", "step.no-body", ("list.steps-order", "step.own-id", "list.steps-page")),
    Violation("get returns the first step", "step.get", ("error.step", "error.foreign-step")),
    Violation("get shows another output", "step.get-same"),
    Violation("no step is planned", "step.planned"),
    Violation("a planned step has another id", "step.planned-id"),
    Violation("no step is the last", "step.ends", ("step.one-last", "step.answer", "step.failure")),
    Violation("every step is the last", "step.one-last"),
    Violation("no step after the last", "step.after-last", ("step.concurrent",)),
    Violation("steps are numbered in their task", "step.own-id", ("error.foreign-step",)),
    Violation("two concurrent steps are one", "step.concurrent"),
    Violation("active steps are not shown", "step.running"),
    Violation("ASCII only", "step.unicode"),
    Violation("a question is the last step", "step.question", is_hidden=True),
    Violation("a question is still running", "step.question", ("~step.answer",)),
    Violation("a question without words", "step.question-output"),
    Violation("answers are ignored", "step.answer"),
    Violation("failures have no text", "step.failure"),
    Violation("failed steps run forever", "step.failure-ends"),
    Violation("tasks with additional_input are not listed", "list.tasks"),
    Violation(
        "page_size is ignored",
        "list.page-size",
        ("list.pages-differ", "list.steps-page", "list.artifacts-page", "list.beyond"),
    ),
    Violation(
        "every page is the first", "list.pages-differ", ("list.steps-page", "list.artifacts-page", "list.beyond")
    ),
    Violation("pagination is always of the first page", "list.current-page"),
    Violation("total_items counts the page", "list.total-items", ("list.total-pages",)),
    Violation("total_pages is rounded down", "list.total-pages"),
    Violation("pages of 25 by default", "list.defaults"),
    Violation("a page beyond the end is not found", "list.beyond"),
    Violation("page_size=0 is a server error", "list.zero"),
    Violation("current_page=one is page 1", "list.no-number"),
    Violation(
        "executed steps are not listed",
        "list.steps",
        ("list.steps-order", "list.steps-page", "step.one-last", "step.running"),
    ),
    Violation("steps are listed newest first", "list.steps-order"),
    Violation("steps have no pages", "list.steps-page"),
    Violation("artifacts have no pages", "list.artifacts-page"),
    Violation("uploads are renamed", "file.upload", ("file.letters",)),
    Violation("uploads are the agent's", "file.not-created", ("file.agent*",)),
    Violation("relative_path is lost", "file.relative-path"),
    Violation("uploads are not listed", "file.listed", ("list.*",)),
    Violation("uploads are not part of the task", "file.in-task"),
    Violation("bytes are read as text", "file.download", ("file.long",)),
    Violation("downloads are text", "file.octet-stream"),
    Violation("empty files are refused", "file.empty"),
    Violation("long files are cut", "file.long"),
    Violation("names are ASCII", "file.letters"),
    Violation("files are stored by name", "file.same-name"),
    Violation("a form without a file is accepted", "file.missing"),
    Violation("steps show no files", "file.agent"),
    Violation("files of the agent are not listed", "file.agent-listed", ("file.agent-download", "file.reaches-agent")),
    Violation("files of the agent cannot be downloaded", "file.agent-download", ("file.reaches-agent",)),
    Violation("the agent receives no files", "file.reaches-agent"),
    Violation("unknown tasks exist", "error.task", ("error.odd-ids",)),
    Violation("unknown tasks have no steps", "error.steps"),
    Violation("unknown tasks have no artifacts", "error.artifacts"),
    Violation("a step of an unknown task is a server error", "error.execute"),
    Violation("an unknown step is the first", "error.step"),
    Violation("steps are found below any task", "error.foreign-step"),
    Violation("uploads to unknown tasks are stored", "error.upload"),
    Violation("an unknown artifact is empty", "error.artifact", ("error.foreign-artifact",)),
    Violation("artifacts are found below any task", "error.foreign-artifact"),
    Violation("a task takes any input", "error.task-input", ("form.task",)),
    Violation("a step takes any input", "error.step-input", ("form.step",)),
    Violation("broken JSON is a server error", "error.json"),
    Violation("odd ids are server errors", "error.odd-ids"),
    Violation("file names are not sanitized", "safe.file-name"),
    Violation("paths are not sanitized", "safe.relative-path"),
    Violation("errors show a stack trace", "safe.errors"),
    Violation("tasks are open to all callers", "safe.owner"),
    Violation("answers are plain text", "form.json"),
    Violation("additional_input is null", "form.task", ("task.additional-input",)),
    Violation("a step without is_last", "form.step", ("step.*",)),
    Violation("a step is finished", "form.status", ("step.completed", "step.question", "step.answer")),
    Violation("agent_created is text", "form.artifact", ("file.*",)),
    Violation("pages are not counted", "form.pagination", ("list.total-pages",)),
    Violation("tasks are a bare array", "form.task-list", ("list.*",)),
    Violation("steps are a bare array", "form.step-list"),
    Violation("artifacts are a bare array", "form.artifact-list", ("list.total-pages",)),
    Violation("not found has a detail", "form.not-found"),
    Violation("422 is a list", "form.unprocessable"),
)


class _Refused(Exception):
    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class Agent(ScriptedServer):
    """Server with one agent. The input of a task selects what it does."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.tasks: dict[str, dict[str, Any]] = {}
        self.steps: dict[str, list[dict[str, Any]]] = {}
        self.files: dict[str, list[dict[str, Any]]] = {}
        self.content: dict[str, bytes] = {}
        self.owners: dict[str, str] = {}
        self._numbers = count(1)
        self._locks: dict[str, asyncio.Lock] = {}
        self._was_listed = asyncio.Event()
        """Set when a client has listed the steps during a long step."""

    async def handle(self, request: Request) -> Answer:
        path = request.path.removeprefix("/ap/v1/agent/tasks")
        try:
            body = await self._route(request, [each for each in path.split("/") if each])
        except _Refused as error:
            return Answer(error.status, error.body)
        if isinstance(body, Answer):
            return body
        kind = "text/plain" if self.does("answers are plain text") else "application/json"
        return Answer(body=body, headers={"content-type": kind})

    async def _route(self, request: Request, path: Sequence[str]) -> Any:
        match request.method, path:
            case "POST", []:
                return self._create(request)
            case "GET", []:
                return self._list_tasks(request)
            case "GET", [id]:
                return self._get_task(request, id)
            case "POST", [id, "steps"]:
                return await self._execute(request, id)
            case "GET", [id, "steps"]:
                return self._list_steps(request, id)
            case "GET", [id, "steps", step]:
                return self._step(request, id, step)
            case "POST", [id, "artifacts"]:
                return self._upload(request, id)
            case "GET", [id, "artifacts"]:
                return self._list_artifacts(request, id)
            case "GET", [id, "artifacts", artifact]:
                return self._download(request, id, artifact)
            case _:
                raise self._not_found()

    # Requests

    def _body(self, request: Request, what: str) -> Mapping[str, Any]:
        if not request.body:
            if self.does(f"a {what} needs a body") and "content-type" not in request.headers:
                raise _Refused(415, {"error": "a body is needed"})
            if "content-type" in request.headers and self.does("a JSON body is never empty"):
                raise _Refused(400, {"error": "no JSON"})
            return {}
        try:
            body = request.json
        except ValueError:
            status = 500 if self.does("broken JSON is a server error") else 422
            text = TRACE if self.does("errors show a stack trace") else "no JSON"
            raise _Refused(status, {"message": text}) from None
        input = body.get("input")
        if not (input is None or isinstance(input, str)) and not self.does(f"a {what} takes any input"):
            raise _Refused(422, ["input"] if self.does("422 is a list") else {"detail": "input is text"})
        return body

    def _not_found(self) -> _Refused:
        return _Refused(404, {("detail" if self.does("not found has a detail") else "message"): "There is none."})

    def _task(self, request: Request, id: str) -> dict[str, Any]:
        if self.does("odd ids are server errors") and len(id) < 10:
            raise _Refused(500, {"message": "no UUID"})
        if id not in self.tasks:
            raise self._not_found()
        if self.owners[id] != request.caller and not self.does("tasks are open to all callers"):
            raise self._not_found()
        return self.tasks[id]

    # Tasks

    def _create(self, request: Request) -> Any:
        body = self._body(request, "task")
        id = "the-task" if self.does("all tasks have one id") else str(uuid4())
        more: Any = {} if self.does("additional_input loses its members") else body.get("additional_input") or {}
        if self.does("additional_input is null"):
            more = None
        input = None if self.does("the task's input is null") else body.get("input")
        input = self.ascii_if("ASCII only", input) if isinstance(input, str) else input
        self.tasks[id] = {"task_id": id, "input": input, "additional_input": more}
        self.owners[id] = request.caller
        self.files[id] = []
        self._locks[id] = asyncio.Lock()
        self.steps[id] = [] if self.does("no step is planned") else [self._plan(id)]
        self.tasks[id]["text"] = body.get("input") or ""
        if self.does("a new task has a file"):
            self._store(id, b"x", "extra.txt", None, by_agent=True)
        return self._view(self.tasks[id])

    def _get_task(self, request: Request, id: str) -> Any:
        if id not in self.tasks and self.does("unknown tasks exist"):
            return {"task_id": id, "input": None, "additional_input": {}, "artifacts": []}
        view = self._view(self._task(request, id))
        self.set_if("get returns another task", view, task_id=str(uuid4()))
        self.set_if("get forgets additional_input", view, additional_input={})
        return view

    def _view(self, task: Mapping[str, Any]) -> dict[str, Any]:
        files = self.files[task["task_id"]]
        if self.does("uploads are not part of the task"):
            files = [each for each in files if each["agent_created"] is True]
        return {**{name: value for name, value in task.items() if name != "text"}, "artifacts": files}

    # Steps

    def _plan(self, task_id: str) -> dict[str, Any]:
        return {
            "task_id": task_id,
            "step_id": f"step-{len(self.steps.get(task_id, ()))}"
            if self.does("steps are numbered in their task")
            else str(uuid4()),
            "status": "created",
            "name": None,
            "input": None,
            "additional_input": {},
            "output": None,
            "additional_output": None,
            "artifacts": [],
            "is_last": False,
        }

    async def _execute(self, request: Request, id: str) -> Any:
        if id not in self.tasks and self.does("a step of an unknown task is a server error"):
            raise _Refused(500, {"message": "KeyError"})
        task = self._task(request, id)
        body = self._body(request, "step")
        lock = self._locks[id]
        async with lock:
            return await self._run(task, body)

    async def _run(self, task: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        id: str = task["task_id"]
        steps = self.steps[id]
        done = [each for each in steps if each["status"] == "completed"]
        if done and done[-1]["input"] == body.get("input") and self.does("two concurrent steps are one"):
            return done[-1]
        if done and done[-1]["is_last"] and self.does("no step after the last"):
            raise _Refused(500, {"message": "no step is left"})
        step = next((each for each in steps if each["status"] == "created"), None)
        if step is None:
            step = self._plan(id)
            steps.append(step)
        self.set_if("a planned step has another id", step, step_id=str(uuid4()))
        input = body.get("input")
        step["input"] = None if self.does("the step's input is null") else input
        step["status"] = "created" if self.does("active steps are not shown") else "running"
        await asyncio.sleep(_SHORT)
        if task["text"].startswith("long"):
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONG):
                    await self._was_listed.wait()
        await self._answer(task, step, input, len(done))
        if self.does("a step names another task"):
            return {**step, "task_id": "a task"}
        if self.does("a step without is_last"):
            return {name: value for name, value in step.items() if name != "is_last"}
        return step

    async def _answer(self, task: Mapping[str, Any], step: dict[str, Any], input: str | None, before: int) -> None:
        text: str = task["text"]
        id = task["task_id"]
        step["status"] = "running" if self.does("steps answer while they run") else "completed"
        step["is_last"] = True
        step["output"] = text or "Nothing."
        if text.startswith("ask"):
            if before == 0:
                self.set_if("a question is still running", step, status="running")
                step["is_last"] = self.does("a question is the last step")
                step["output"] = None if self.does("a question without words") else "Who are you?"
                if not step["is_last"]:
                    self.steps[id].append(self._plan(id))
            else:
                step["output"] = "Hello." if self.does("answers are ignored") else f"Hello, {input}."
        elif text.startswith("steps") and before == 0:
            step["is_last"] = False
            self.steps[id].append(self._plan(id))
        elif text.startswith("fail"):
            step["additional_output"] = {"error": "it failed"}
            self.set_if("failures have no text", step, additional_output=None, output=None)
            self.set_if("failed steps run forever", step, status="running")
        elif text.startswith("files"):
            for each in [file for file in self.files[id] if not file["agent_created"]]:
                content = b"" if self.does("the agent receives no files") else self.content[each["artifact_id"]]
                artifact = self._store(id, content, f"copy of {each['file_name']}", None, by_agent=True)
                if not self.does("steps show no files"):
                    step["artifacts"].append(artifact)
        self.set_if("no output", step, output=None, additional_output=None)
        self.set_if("no step is the last", step, is_last=False)
        if self.does("every step is the last") and before == 0 and text.startswith("Hello"):
            self.steps[id].append({**self._plan(id), "is_last": True})
        self.set_if("a step is finished", step, status="finished")

    def _step(self, request: Request, id: str, step_id: str) -> Any:
        self._task(request, id)
        steps = self.steps[id]
        if self.does("steps are found below any task"):
            steps = [step for each in self.steps.values() for step in each]
        found = next((step for step in steps if step["step_id"] == step_id), None)
        if self.does("get returns the first step"):
            return {**steps[0], "step_id": str(uuid4())}
        if found is None and self.does("an unknown step is the first"):
            found = steps[0] if steps[0]["status"] == "completed" else None
        if found is None:
            raise self._not_found()
        return {**found, "output": "Something else."} if self.does("get shows another output") else found

    # Files

    def _store(self, task_id: str, content: bytes, name: str, path: str | None, *, by_agent: bool) -> dict[str, Any]:
        id = name if self.does("files are stored by name") else str(uuid4())
        created_by_agent: Any = (
            "yes" if self.does("agent_created is text") else by_agent or self.does("uploads are the agent's")
        )
        artifact = {"artifact_id": id, "agent_created": created_by_agent, "file_name": name, "relative_path": path}
        self.files[task_id].append(artifact)
        self.content[id] = content
        return artifact

    def _upload(self, request: Request, id: str) -> Any:
        if id not in self.tasks and self.does("uploads to unknown tasks are stored"):
            return {"artifact_id": "a", "agent_created": False, "file_name": "note.txt", "relative_path": None}
        self._task(request, id)
        fields = _form(request)
        if "file" not in fields and not self.does("a form without a file is accepted"):
            raise _Refused(422, {"detail": "file is missing"})
        name, content = fields.get("file", ("none.txt", b""))
        path = fields.get("relative_path", (None, None))[1]
        self.raise_if("empty files are refused", _Refused(422, {"detail": "empty"}), when=not content)
        if len(content) > 1_000_000 and self.does("long files are cut"):
            content = content[:1_000_000]
        if self.does("bytes are read as text"):
            content = content.decode("utf-8", errors="replace").encode()
        if not self.does("file names are not sanitized"):
            name = name.rpartition("/")[2]
        if self.does("names are ASCII"):
            name = name.encode("ascii", errors="replace").decode()
        if self.does("uploads are renamed"):
            name = f"upload-{next(self._numbers)}"
        where = path.decode() if path is not None else None
        if where is not None and ".." in where and not self.does("paths are not sanitized"):
            raise _Refused(422, {"detail": "a path that leads out"})
        if self.does("relative_path is lost"):
            where = None
        return self._store(id, content, name, where, by_agent=False)

    def _download(self, request: Request, id: str, artifact_id: str) -> Answer:
        self._task(request, id)
        files = self.files[id]
        if self.does("artifacts are found below any task"):
            files = [file for each in self.files.values() for file in each]
        found = next((file for file in files if file["artifact_id"] == artifact_id), None)
        if found is None:
            if self.does("an unknown artifact is empty"):
                return Answer(body=b"")
            raise self._not_found()
        if found["agent_created"] is True and self.does("files of the agent cannot be downloaded"):
            raise self._not_found()
        kind = "text/plain" if self.does("downloads are text") else "application/octet-stream"
        return Answer(body=self.content[artifact_id], headers={"content-type": kind})

    # Lists

    def _list_tasks(self, request: Request) -> Any:
        tasks = [self._view(each) for each in self.tasks.values()]
        if self.does("tasks with additional_input are not listed"):
            tasks = [each for each in tasks if not each["additional_input"]]
        page = self._page(request, tasks, "tasks")
        return page["tasks"] if self.does("tasks are a bare array") else page

    def _list_steps(self, request: Request, id: str) -> Any:
        if id not in self.tasks and self.does("unknown tasks have no steps"):
            return self._page(request, [], "steps")
        if self._task(request, id)["text"].startswith("long") and self._locks[id].locked():
            self._was_listed.set()
        steps = list(self.steps[id])
        if self.does("executed steps are not listed"):
            steps = [each for each in steps if each["status"] == "created"]
        if self.does("steps are listed newest first") and steps[-1]["status"] != "created":
            steps.reverse()
        page = self._page(request, steps, "steps", has_pages=not self.does("steps have no pages"))
        return page["steps"] if self.does("steps are a bare array") else page

    def _list_artifacts(self, request: Request, id: str) -> Any:
        if id not in self.tasks and self.does("unknown tasks have no artifacts"):
            return self._page(request, [], "artifacts")
        self._task(request, id)
        files = list(self.files[id])
        if self.does("uploads are not listed"):
            files = [each for each in files if each["agent_created"] is True]
        if self.does("files of the agent are not listed"):
            files = [each for each in files if each["agent_created"] is not True]
        page = self._page(request, files, "artifacts", has_pages=not self.does("artifacts have no pages"))
        return page["artifacts"] if self.does("artifacts are a bare array") else page

    def _page(self, request: Request, items: list[Any], name: str, *, has_pages: bool = True) -> dict[str, Any]:
        number = self._number(request, "current_page", 1)
        size = self._number(request, "page_size", 25 if self.does("pages of 25 by default") else 10)
        start = 0 if self.does("every page is the first") else (number - 1) * size
        page_items = items[start : start + size] if has_pages and not self.does("page_size is ignored") else items
        if start >= len(items) and number > 2 and self.does("a page beyond the end is not found"):
            raise self._not_found()
        pages = math.floor(len(items) / size) if self.does("total_pages is rounded down") else -(-len(items) // size)
        total = len(page_items) if self.does("total_items counts the page") else len(items)
        if self.does("total_items counts the page"):
            pages = -(-total // size)
        page: dict[str, Any] = {
            "total_items": total,
            "total_pages": pages,
            "current_page": 1 if self.does("pagination is always of the first page") else number,
            "page_size": size,
        }
        self.drop_if("pages are not counted", page, "total_pages")
        return {name: page_items, "pagination": page}

    def _number(self, request: Request, name: str, default: int) -> int:
        text = request.query.get(name)
        if text is None:
            return default
        if not text.isdecimal():
            if self.does("current_page=one is page 1"):
                return default
            raise _Refused(422, {"detail": f"{name} is a number"})
        if int(text) < 1:
            raise _Refused(
                500 if self.does("page_size=0 is a server error") else 422, {"detail": f"{name} is too small"}
            )
        return int(text)


def _form(request: Request) -> dict[str, tuple[str, bytes]]:
    """Return the file name and content of each member of a form."""
    kind = Message()
    kind["content-type"] = request.headers.get("content-type", "")
    boundary = str(kind.get_param("boundary"))
    found: dict[str, tuple[str, bytes]] = {}
    for part in request.body.split(f"--{boundary}".encode())[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        names = dict(re.findall(r'(name|filename)="([^"]*)"', head.decode()))
        found[names["name"]] = (names.get("filename", ""), content.removesuffix(b"\r\n"))
    return found


SERVER: Final = Server(
    set="aief-v1",
    make=Agent,
    violations=VIOLATIONS,
    options=options(
        plain="Hello", question=Trigger("ask me", answer="Ada"), fail="fail", long="long", files="files", steps="steps"
    ),
    unbroken={
        "task.create": "no other requirement can pass without it; the dead server covers it",
        "step.execute": "no other requirement on steps can pass without it; the dead server covers it",
    },
)
