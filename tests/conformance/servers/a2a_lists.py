"""ListTasks of the scripted A2A 1.0 server."""

from collections.abc import Mapping
from typing import Any

from tests.conformance.servers.a2a_agent import OPEN, TERMINAL, Agent, Refused, Task

_STATES = TERMINAL | OPEN


def list_tasks(agent: Agent, params: Mapping[str, Any], owner: str) -> dict[str, Any]:
    size = params.get("pageSize", 50)
    if not 1 <= size <= 100:
        if not agent.does("any pageSize is accepted"):
            raise Refused("INVALID_PARAMS")
        size = 50
    tasks = _matching(agent, params, owner)
    start = _start(agent, params)
    page = tasks[start : start + (50 if agent.does("pageSize is ignored") else size)]
    after = start + size + (1 if agent.does("a cursor that skips") else 0)
    token = f"from-{after}" if after < len(tasks) or agent.does("the last page has a token") else ""
    listed = {
        "tasks": [_view(agent, task, params) for task in page],
        "nextPageToken": token,
        "pageSize": size,
        "totalSize": len(page) if agent.does("the total is of the page") else len(tasks),
    }
    if agent.does("a list without its size"):
        del listed["pageSize"]
    return listed


def _matching(agent: Agent, params: Mapping[str, Any], owner: str) -> list[Task]:
    tasks = [each for each in agent.tasks.values() if each.owner == owner or _is_shown_to_others(agent, params)]
    context, status, since = (params.get(name) for name in ("contextId", "status", "statusTimestampAfter"))
    if context is not None:
        found = [each for each in tasks if each.context == context]
        if not found and agent.does("an unknown context is every context"):
            found = tasks
        tasks = tasks[-20:] if found and agent.does("lists ignore contexts") else found
    if status is not None:
        if str(status).removeprefix("TASK_STATE_") not in _STATES and not agent.does("any state is accepted"):
            raise Refused("INVALID_PARAMS")
        if not agent.does("the state is ignored"):
            tasks = [each for each in tasks if f"TASK_STATE_{each.state}" == status]
    if since is not None and not agent.does("the time is ignored"):
        tasks = [each for each in tasks if since <= f"{each.at.isoformat()}"]
    if len(tasks) > 1 and agent.does("a list lacks a task"):
        tasks = tasks[1:]
    if agent.does("a list has a task twice"):
        tasks = [*tasks[:1], *tasks]
    return sorted(tasks, key=lambda each: each.at, reverse=not agent.does("the oldest tasks come first"))


def _is_shown_to_others(agent: Agent, params: Mapping[str, Any]) -> bool:
    wrong = "any caller's context is listed" if "contextId" in params else "all callers' tasks are listed"
    return agent.does(wrong)


def _start(agent: Agent, params: Mapping[str, Any]) -> int:
    token = str(params.get("pageToken") or "from-0")
    number = token.removeprefix("from-")
    if not number.isdecimal():
        if not agent.does("any token is the start"):
            raise Refused("INVALID_PARAMS")
        return 0
    return int(number)


def _view(agent: Agent, task: Task, params: Mapping[str, Any]) -> dict[str, Any]:
    length = None if agent.does("lists have all of the history") else params.get("historyLength")
    result = agent.view(task, length)
    if not params.get("includeArtifacts"):
        if agent.does("lists have empty artifacts"):
            result["artifacts"] = []
        else:
            del result["artifacts"]
    elif agent.does("lists never have artifacts"):
        del result["artifacts"]
    return result
