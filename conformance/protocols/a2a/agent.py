"""A2A agent that probes test, and the lookup of other agents of the same server, which triggers may name."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from babelgate.conformance.probe import Context
from babelgate.conformance.protocols.a2a.binding import Binding
from babelgate.conformance.protocols.a2a.discovery import CardDiscovery, own_url_of, sibling_of
from babelgate.conformance.verdict import NO_TRIGGER, NotApplicable, NotObserved, Prerequisite
from babelgate.conformance.wire.http import Wire


@dataclass(frozen=True, slots=True)
class A2aTarget:
    url: str
    """URL at which the user or a trigger named the agent, without a trailing slash."""
    found: CardDiscovery
    """Agent card, or the last response if no card was found."""
    bindings: tuple[Binding, ...]
    """Bindings of the judged protocol version that the card declares and the check supports, in the order of the card,
    without duplicates."""
    reopen: Callable[[Wire, str], Awaitable["A2aTarget"]]
    """Function that finds the agent at another URL by its card. Raises Prerequisite if there is no card."""

    @property
    def card(self) -> Any:
        """Agent card as received, or None if there is no card."""
        return self.found.card

    def __getitem__(self, name: str) -> Binding:
        for binding in self.bindings:
            if binding.name == name:
                return binding
        raise Prerequisite(
            f"an interface {name} of {self.url}", [each.name for each in self.bindings], self.found.exchange
        )


Ctx = Context[A2aTarget]


async def agent_for(ctx: Ctx, behaviour: str) -> A2aTarget:
    """Return the agent of the server that shows a behaviour, as its trigger names it.

    Raises NotObserved if the user gave no trigger for the behaviour, and NotApplicable if the user states that the
    agent never shows it.
    """
    trigger = ctx.triggers[behaviour]
    if trigger.is_never:
        raise NotApplicable(f"the owner declares that the agent never {behaviour_text(behaviour)}")
    if not trigger.is_from_user and behaviour != "plain":
        raise NotObserved(NO_TRIGGER, behaviour)
    return await ctx.once(_sibling, trigger.agent) if trigger.agent else ctx.target


def behaviour_text(behaviour: str) -> str:
    return f"shows the behavior of the trigger {behaviour}"


async def _sibling(ctx: Ctx, name: str) -> A2aTarget:
    target = ctx.target
    url = sibling_of(own_url_of(target.url, target.found.exchange.url, [each.url for each in target.bindings]), name)
    if url is None:
        raise NotObserved(
            f"{ctx.target.url} names no agent, so the URL of the agent {name} is unknown; judge an agent's URL"
        )
    return target if url == target.url else await target.reopen(ctx.wire, url)


def message(text: str, **members: Any) -> dict[str, Any]:
    """Return a message of the user with this text and a new id, in the form of A2A 1.0. `members` are further members
    of the message."""
    return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **members}
