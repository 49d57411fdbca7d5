"""Routes of the agent cards: one for each agent, and one at the root for the default agent or the agent in
`?assistant_id=`."""

from collections.abc import Sequence
from typing import Any

from litestar import Response, get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler
from pydantic_core import to_json

from babelgate.adapters.a2a.agents.card import CardForm, card, etag, versions_of
from babelgate.adapters.a2a.agents.signatures import sign_card
from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.errors import a2a_error
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller
from babelgate.adapters.kit.server.extended import answer_file
from babelgate.canonical import AgentInfo, FaultCode, FaultError, Hub
from babelgate.canonical.value import JsonObject

from .call import Answer, Call, requested_version

MAX_AGE = 300
"""Seconds for which a client may cache a card. Chosen: a card changes only with the configuration."""


async def get_extended_card(call: Call, dialect: Dialect, params: JsonObject) -> Answer:
    """Return the extended card, which is only for authenticated callers. The gateway has already checked the
    credential. The card shows only skills that the caller may run, and both versions require at least one.

    Raises forbidden if the caller may not run the agent. Raises UNSUPPORTED_OPERATION if the gateway needs no
    credentials, because then no extended card is declared.
    """
    # Specification 1.0, 3.1.11: UNSUPPORTED_OPERATION is for a card that is not declared, and
    # EXTENDED_AGENT_CARD_NOT_CONFIGURED for one that is declared and missing.
    if not call.caller.authentication.is_required:
        raise a2a_error("UNSUPPORTED_OPERATION", "The agent declares no extended card.")
    call.hub.check_submit(call.principal, call.agent.name)
    return Answer(_card(dialect.version, call.agent, call.caller))


def _card(form: CardForm, agent: AgentInfo, who: Caller) -> JsonObject:
    """Return the card of an agent in one form. A card in the form of 1.0 is signed, if the gateway has signing keys.

    The merged card is not signed: a signature of 1.0 cannot cover its members of 0.3.
    """
    unsigned = card(form, agent, who.base_url, who.authentication, who.rpc_address)
    return sign_card(unsigned, who.signer) if form == "1.0" else unsigned


def _answer(hub: Hub, request: AnyRequest, agent: str, form: CardForm) -> Response[bytes]:
    who = caller(request)
    body = to_json(_card(form, hub.agent(who.principal, agent), who))
    tag = etag(body)
    # Specification 1.0, 8.6: `max-age` and `ETag` SHOULD be sent. `Vary` makes caches store one card per version.
    headers = {"ETag": tag, "Cache-Control": f"public, max-age={MAX_AGE}", "Vary": "A2A-Version"}
    cached_tags = [item.strip().removeprefix("W/") for item in request.headers.get("If-None-Match", "").split(",")]
    if tag in cached_tags or "*" in cached_tags:
        return Response(b"", status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _root_agent(request: AnyRequest) -> str:
    # langgraph-api 0.16.7 takes the same parameter at its root.
    agent = request.query_params.get("assistant_id") or caller(request).agent
    if not agent:
        raise FaultError(
            FaultCode.INVALID,
            "There is no default agent here: name one, as in /.well-known/agent-card.json?assistant_id=<agent>, or get "
            "the card at /a2a/<agent>/.well-known/agent-card.json.",
        )
    return agent


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    @get(["/a2a/{agent:str}/.well-known/agent-card.json", "/a2a/{agent:str}"])
    async def agent_card(request: AnyRequest, agent: FromPath[str]) -> Response[bytes]:
        return _answer(hub, request, agent, versions_of(requested_version(request)))

    # Path of 0.2; 0.3 (5.3) renamed it to `agent-card.json`.
    @get("/a2a/{agent:str}/.well-known/agent.json")
    async def agent_card_0_2(request: AnyRequest, agent: FromPath[str]) -> Response[bytes]:
        return _answer(hub, request, agent, "0.3")

    @get("/.well-known/agent-card.json")
    async def root_card(request: AnyRequest) -> Response[bytes]:
        return _answer(hub, request, _root_agent(request), versions_of(requested_version(request)))

    @get("/.well-known/agent.json")
    async def root_card_0_2(request: AnyRequest) -> Response[bytes]:
        return _answer(hub, request, _root_agent(request), "0.3")

    @get("/a2a/{agent:str}/files/{blob:str}")
    async def file(request: AnyRequest, agent: FromPath[str], blob: FromPath[str]) -> Response[Any]:
        """Serve a file that was too large for a message."""
        hub.agent(caller(request).principal, agent)
        return await answer_file(hub, request, blob)

    return [agent_card, agent_card_0_2, root_card, root_card_0_2, file]
