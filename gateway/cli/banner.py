"""What a gateway shows when it is ready: where each protocol is, and a call of it that can be pasted."""

from collections.abc import Iterable, Iterator
from importlib.metadata import version

import click

from adapters import ADAPTERS
from gateway.agents.registry import Registry
from gateway.cli.listener import is_loopback
from gateway.cli.log import one_line
from gateway.registered_agent import RegisteredAgent
from gateway.settings.model import Settings


def banner(settings: Settings, base_url: str, registry: Registry) -> Iterator[str]:
    yield click.style(f"Babelgate {version('babelgate')} serves {base_url}", bold=True)
    working = [each for each in registry.all() if each.broken is None]
    shown = next((each.info.name for each in working if each.info.name == registry.default), None)
    shown = shown or next((each.info.name for each in working), None)
    if shown is not None:
        yield ""
        yield from _calls(settings, base_url, shown)
    yield ""
    yield from _agents(registry, working)
    yield from _row("database", settings.database_shown)
    if settings.workers > 1:
        yield from _row("workers", f"{settings.workers} processes")
    if not settings.keys:
        who = "anyone on this machine" if is_loopback(settings.host) else "anyone who can reach it"
        yield from _row("callers", f"{who}: there are no API keys")
    yield ""
    yield "Ctrl-C stops it."


def _calls(settings: Settings, base_url: str, agent: str) -> Iterator[str]:
    examples = [example for adapter in ADAPTERS for example in adapter.examples(base_url, agent)]
    width = max(len(example.label) for example in examples)
    for example in examples:
        curl = example.curl
        if settings.keys:
            curl = curl.replace("curl ", 'curl -H "Authorization: Bearer $BABELGATE_KEY" ', 1)
        yield f"  {click.style(example.label.ljust(width), bold=True)}  {click.style(example.url, fg='cyan')}"
        yield f"  {'':{width}}  {curl}"


def _agents(registry: Registry, working: Iterable[RegisteredAgent]) -> Iterator[str]:
    names = [f"{each.info.name}{' (default)' if each.info.name == registry.default else ''}" for each in working]
    yield from _row("agents", ", ".join(names) or "none that works")
    for each in registry.all():
        if each.broken is not None:
            yield from _row("broken", click.style(one_line(f"{each.info.name}: {each.broken}"), fg="red"))


def _row(label: str, text: str) -> Iterator[str]:
    yield f"  {click.style(label.ljust(8), bold=True)}  {text}"
