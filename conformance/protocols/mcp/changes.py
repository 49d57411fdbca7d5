"""Changes of resources that a check causes while it listens for notifications."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from babelgate.conformance.protocols.mcp.resources import find_resources, list_resources
from babelgate.conformance.protocols.mcp.scenes import call_of
from babelgate.conformance.protocols.mcp.target import Ctx
from babelgate.conformance.verdict import NotShown, check
from babelgate.conformance.wire.exchange import Exchange, dig
from babelgate.conformance.wire.http import EventSource, Unanswered

UPDATED: Final = "notifications/resources/updated"
QUIET_SECONDS: Final = 1.0
"""Seconds to wait for a notification that should not arrive. Chosen."""
_WATCHED: Final = 10
"""Maximum number of resources that are followed. Chosen."""


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """Resources that were followed while a tool changed one."""

    uris: Sequence[str]
    messages: Sequence[Any]
    """Messages that arrived while the tool ran, and after it."""
    changed: Sequence[str]
    """URIs of the resources whose contents the tool changed."""
    exchange: Exchange

    @property
    def updated(self) -> list[str]:
        """URIs in the notifications of updates."""
        return [str(dig(each, "params", "uri")) for each in self.messages if dig(each, "method") == UPDATED]


async def prepare(ctx: Ctx) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the params of a call that changes a resource, and the contents of the first resources by URI. The contents
    are None for a resource that changes with every read.

    Raises NotObserved or NotApplicable without a trigger for the change, or without a resource.
    """
    _, params = await call_of(ctx, "change")
    # The first call may create the resource that the second one changes.
    await ctx.target.ask("tools/call", params)
    await ctx.once(find_resources)
    uris = [str(dig(each, "uri")) for each in (await list_resources(ctx))[:_WATCHED]]
    uris = uris or [str(dig(each, "uri")) for each in await ctx.once(find_resources)]
    first, second = await _read_all(ctx, uris), await _read_all(ctx, uris)
    return params, {uri: second[uri] if first[uri] == second[uri] else None for uri in uris}


async def find_changed(ctx: Ctx, before: Mapping[str, Any]) -> list[str]:
    """Return the URIs of the resources whose contents differ from `before`."""
    after = await _read_all(ctx, [uri for uri, contents in before.items() if contents is not None])
    return [uri for uri, contents in after.items() if contents is not None and contents != before[uri]]


def check_updated(watch: WatchedChange) -> None:
    """Check that a changed resource was notified. Raises NotShown if the tool changed nothing that was followed."""
    if not watch.updated and not watch.changed:
        raise NotShown("change", "changed none of the resources that it lists")
    # SPEC/schema, ResourceUpdatedNotification: the URI may be that of a part of the resource.
    is_right = bool(watch.updated) and all(uri.startswith(tuple(watch.uris)) for uri in watch.updated)
    check(is_right, f"{UPDATED} with the URI of a followed resource", watch.messages, watch.exchange)


async def read_until_update(stream: EventSource, bound: float) -> list[Any]:
    """Read notifications until one announces an update, or for at most `bound` seconds of silence."""
    messages: list[Any] = []
    with suppress(Unanswered):
        while (frame := await stream.next(bound)) is not None:
            if not frame.data:
                continue
            messages.append(frame.json_or_none)
            if dig(messages[-1], "method") == UPDATED:
                break
    return messages


async def _read_all(ctx: Ctx, uris: Sequence[str]) -> dict[str, Any]:
    replies = {uri: await ctx.target.ask("resources/read", {"uri": uri}) for uri in uris}
    return {uri: dig(reply.result, "contents") for uri, reply in replies.items()}
