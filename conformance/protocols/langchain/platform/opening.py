"""Detection of a LangGraph Platform server and its features."""

from typing import Final

from babelgate.conformance.probe import NotSpoken, Opened, ProbeOptions
from babelgate.conformance.protocols.langchain.server import PLATFORM, LangChainTarget, Layout, base_of, choose_agent
from babelgate.conformance.wire.exchange import as_list, dig
from babelgate.conformance.wire.http import Wire

LAYOUT: Final = Layout("LangGraph", is_below=True, waited="Values", wait="join", tuples="messages-tuple")
_NO_THREAD_ID: Final = "00000000-0000-4000-8000-000000000000"


async def open_server(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[LangChainTarget]:
    """Find a LangGraph Platform server by the URL to which `/threads` is added, as `ProbeSuite.open` requires. If
    `is_requested`, the user named the protocol, so the server is judged even if it does not seem to speak it. Otherwise
    raises NotSpoken.

    The URL may name an assistant by `/assistants/{assistant_id}`.
    """
    base, agent = base_of(url, "assistants")
    body = {"limit": 100}
    found = await wire.request("POST", f"{base}/assistants/search", sends=None, receives=None, body=body)
    listed = [each for each in as_list(found.json) if isinstance(dig(each, "assistant_id"), str)]
    if not listed and not is_requested:
        raise NotSpoken(f"POST /assistants/search gives no assistants ({found})")
    server = LangChainTarget(wire, base, PLATFORM, (LAYOUT,), {}, "")
    await choose_agent(server, agent, [str(dig(each, "assistant_id")) for each in listed], "assistants")
    capabilities = {"second-caller"} if options.other_headers else set[str]()
    namespaces = await server.ask("POST", "/store/namespaces", {"limit": 1})
    if namespaces.status == 200:
        capabilities.add("store")
    thread_id = dig((await server.ask("POST", "/threads", {})).json, "thread_id") or _NO_THREAD_ID
    url = server.url(f"/threads/{thread_id}/commands")
    # A server with commands answers an invalid command with an error of commands, not of requests.
    command = await wire.request("POST", url, sends=None, receives=None, body={})
    if command.status not in (404, 405, 501):
        capabilities.add("commands")
    return Opened(server, base, f"{found} gives {len(listed)} assistants", frozenset(capabilities))
