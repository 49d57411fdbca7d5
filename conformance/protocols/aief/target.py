"""Client for a judged AIEF server. A server is one agent, and no operation describes it."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit
from uuid import uuid4

from babelgate.conformance.probe import Context, NotSpoken, Opened, ProbeOptions
from babelgate.conformance.verdict import NO_TRIGGER, NotApplicable, NotObserved
from babelgate.conformance.wire.exchange import Exchange, as_list, dig
from babelgate.conformance.wire.http import Receives, Wire

_PATH: Final = "/ap/v1/agent/tasks"
_ERRORS: Final[Mapping[int, str]] = {404: "NotFound", 422: "Unprocessable"}


class AiefTarget:
    """Client for an AIEF server: one method for each operation of the protocol."""

    def __init__(self, wire: Wire, base: str) -> None:
        self.wire = wire
        self.base = base
        """Base URL of the server, to which `/ap/v1/agent/tasks` is added."""

    @property
    def tasks_url(self) -> str:
        return self.base + _PATH

    def url(self, task_id: str, *rest: str) -> str:
        return "/".join((self.tasks_url, quote(task_id, safe=""), *(quote(each, safe="") for each in rest)))

    async def create_task(self, body: Any = None, **options: Any) -> Exchange:
        return await self._post(self.tasks_url, "createAgentTask.request", "Task", body, **options)

    async def execute_step(self, task_id: str, body: Any = None, **options: Any) -> Exchange:
        return await self._post(self.url(task_id, "steps"), "executeAgentTaskStep.request", "Step", body, **options)

    async def task(self, task_id: str, **options: Any) -> Exchange:
        return await self._get(self.url(task_id), "Task", **options)

    async def step(self, task_id: str, step_id: str, **options: Any) -> Exchange:
        return await self._get(self.url(task_id, "steps", step_id), "Step", **options)

    async def tasks(self, **page: Any) -> Exchange:
        return await self._get(_add_page_query(self.tasks_url, page), "TaskListResponse")

    async def steps(self, task_id: str, **page: Any) -> Exchange:
        return await self._get(_add_page_query(self.url(task_id, "steps"), page), "TaskStepsListResponse")

    async def artifacts(self, task_id: str, **page: Any) -> Exchange:
        return await self._get(_add_page_query(self.url(task_id, "artifacts"), page), "TaskArtifactsListResponse")

    async def download(self, task_id: str, artifact_id: str, **options: Any) -> Exchange:
        return await self._get(self.url(task_id, "artifacts", artifact_id), None, **options)

    async def upload(
        self,
        task_id: str,
        content: bytes | None,
        file_name: str = "note.txt",
        relative_path: str | None = None,
        **options: Any,
    ) -> Exchange:
        """Upload a file to a task and return the exchange. `content` and `relative_path` are omitted from the form if
        they are None."""
        boundary = f"judge-{uuid4().hex}"
        return await self.wire.request(
            "POST",
            self.url(task_id, "artifacts"),
            sends=None,
            receives={200: "Artifact", **_ERRORS},
            content=_form(boundary, content, file_name, relative_path),
            headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
            **options,
        )

    async def _post(
        self, url: str, sends: str, receives: str, body: Any, *, is_valid: bool = True, **options: Any
    ) -> Exchange:
        """Send a POST and return the exchange. `sends` and `receives` name the schemas of the request and of a response
        with status 200.

        With `is_valid=False`, the request is intentionally invalid and is not validated. If `body` is None, the request
        has no body.
        """
        return await self.wire.request(
            "POST",
            url,
            sends=sends if is_valid and body is not None else None,
            receives={200: receives, **_ERRORS},
            body=body,
            **options,
        )

    async def _get(self, url: str, receives: str | None, **options: Any) -> Exchange:
        answers: Receives = dict(_ERRORS) if receives is None else {200: receives, **_ERRORS}
        return await self.wire.request("GET", url, sends=None, receives=answers, **options)


Ctx = Context[AiefTarget]


async def open_agent(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[AiefTarget]:
    """Find an AIEF server by its base URL, or by any URL below its `/ap/v1`, as `ProbeSuite.open` requires. If
    `is_requested`, the user named the protocol, so the server is judged even if it lists no tasks. Otherwise raises
    NotSpoken."""
    agent = AiefTarget(wire, base_of(url))
    listed = await agent.tasks()
    if not isinstance(dig(listed.json, "tasks"), list) and not is_requested:
        raise NotSpoken(f"GET {_PATH} gives no list of tasks ({listed})")
    found = {"second-caller"} if options.other_headers else set[str]()
    return Opened(agent, agent.tasks_url, f"{listed} gives a list of tasks", frozenset(found))


def base_of(url: str) -> str:
    parts = urlsplit(url)
    path = parts.path.partition("/ap/v1")[0].rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


async def agent_for(ctx: Ctx, behaviour: str) -> AiefTarget:
    """Return the agent that shows a behaviour, as its trigger names it. Another agent's URL has its name as the last
    segment.

    Raises NotObserved if the user gave no trigger for the behaviour, and NotApplicable if the user states that the
    agent never shows it.
    """
    trigger = ctx.triggers[behaviour]
    if trigger.is_never:
        raise NotApplicable("the owner declares that the agent never does it")
    if not trigger.is_from_user and behaviour != "plain":
        raise NotObserved(NO_TRIGGER, behaviour)
    if not trigger.agent:
        return ctx.target
    parts = urlsplit(ctx.target.base)
    head = parts.path.rpartition("/")[0] if parts.path.strip("/") else "/agent"
    return AiefTarget(ctx.wire, urlunsplit((parts.scheme, parts.netloc, f"{head}/{trigger.agent}", "", "")))


def items_of(exchange: Exchange, name: str) -> list[Any]:
    """Return the items of a list: of the member `name`, as the OpenAPI document defines it, or of a bare array.

    Both forms are read, because another requirement tests the form of the list.
    """
    value = exchange.json
    return as_list(value) if isinstance(value, list) else as_list(dig(value, name))


def unknown_id() -> str:
    return str(uuid4())


def _add_page_query(url: str, page: Mapping[str, Any]) -> str:
    return f"{url}?{urlencode(page)}" if page else url


def _form(boundary: str, content: bytes | None, file_name: str, relative_path: str | None) -> bytes:
    """Return the body of a multipart/form-data request (RFC 7578) with the fields `file` and `relative_path`. A field
    whose value is None is left out."""
    parts: list[bytes] = []
    if content is not None:
        name = file_name.replace('"', "%22")
        head = (
            f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: application/octet-stream'
        )
        parts.append(head.encode() + b"\r\n\r\n" + content)
    if relative_path is not None:
        parts.append(f'Content-Disposition: form-data; name="relative_path"\r\n\r\n{relative_path}'.encode())
    if not parts:
        parts.append(b'Content-Disposition: form-data; name="comment"\r\n\r\nno file')
    mark = f"--{boundary}".encode()
    return b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"
