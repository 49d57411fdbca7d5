"""Detection of an Agent Protocol server, its layouts and its features."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from babelgate.conformance.probe import NotSpoken, Opened, ProbeOptions
from babelgate.conformance.protocols.langchain.server import (
    AGENT_PROTOCOL,
    LangChainTarget,
    Layout,
    base_of,
    choose_agent,
)
from babelgate.conformance.wire.exchange import Exchange, as_list, dig
from babelgate.conformance.wire.http import Wire

OPENAPI: Final = Layout("OpenAPI", is_below=False)
README: Final = Layout(
    "README", is_below=True, run="ThreadRun", waited="ThreadRunWaitResponse", tuples="messages-tuple"
)

_UNSUPPORTED: Final = (404, 405, 501)
"""HTTP statuses that mean that a server does not support an operation."""
_NO_THREAD_ID: Final = "00000000-0000-4000-8000-000000000000"


async def open_server(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[LangChainTarget]:
    """Find an Agent Protocol server by the URL to which `/threads` is added, as `ProbeSuite.open` requires. If
    `is_requested`, the user named the protocol, so the server is judged even if it does not seem to speak it. Otherwise
    raises NotSpoken.

    The URL may name an agent by `/agents/{agent_id}`.
    """
    base, agent = base_of(url, "agents")

    async def look(method: str, path: str, body: Any = None) -> Exchange:
        """Send a request and return the exchange. Nothing is validated: the form of errors depends on the layout, which
        is not known yet."""
        return await wire.request(method, f"{base}{path}", sends=None, receives=None, body=body)

    agents = await look("POST", "/agents/search", {"limit": 1000})
    listed = [each for each in as_list(agents.json) if isinstance(dig(each, "agent_id"), str)]
    if not is_requested:
        await _check_spoken(look, agents, listed)
    thread_id = str(dig((await look("POST", "/threads", {})).json, "thread_id") or _NO_THREAD_ID)
    flat = await look("POST", "/runs/search", {"thread_id": thread_id})
    below = await look("GET", README.runs(thread_id))
    lists = ((OPENAPI, flat), (README, below))
    layouts = tuple(layout for layout, each in lists if each.status == 200 and isinstance(each.json, list))
    found = {layout.name for layout in layouts}
    if agents.status not in _UNSUPPORTED:
        found.add("agents")
    if options.other_headers:
        found.add("second-caller")
    if (await look("POST", "/store/namespaces", {"limit": 1})).status == 200:
        found.add("store")
    if (await look("POST", f"/threads/{thread_id}/commands", {})).status not in _UNSUPPORTED:
        found.add("commands")
    names = {str(dig(each, "name")): str(dig(each, "agent_id")) for each in listed}
    server = LangChainTarget(wire, base, AGENT_PROTOCOL, layouts or (OPENAPI,), names, "")
    await choose_agent(server, agent, list(names.values()), "agents")
    layout_names = " and ".join(each.name for each in server.layouts)
    return Opened(
        server, base, f"{agents} gives {len(listed)} agents; the layout of the {layout_names}", frozenset(found)
    )


async def _check_spoken(look: Callable[..., Awaitable[Exchange]], agents: Exchange, listed: Sequence[Any]) -> None:
    if not listed:
        raise NotSpoken(f"POST /agents/search gives no agents ({agents})")
    # The paths of both protocols clash, and one server cannot answer both as specified.
    if as_list((await look("POST", "/assistants/search", {"limit": 1})).json):
        raise NotSpoken("it is LangGraph Platform's dialect: POST /assistants/search gives assistants")
