"""Text that `babelgate serve` prints when it is ready: the URL of each protocol, with an example call to paste."""

import shutil
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import click

from babelgate.adapters import ADAPTERS
from babelgate.canonical.printable import one_line
from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.cli.listener import is_loopback
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings


def banner(settings: Settings, base_url: str, registry: Registry) -> Iterator[str]:
    """Yield the lines of the text that shows how to call the gateway. The first line has the URL of the gateway."""
    yield click.style(f"Babelgate {version('babelgate')} serves {base_url}", bold=True)
    if settings.console.enabled:
        yield ""
        yield from _row("console", click.style(f"{base_url}/console/", fg="cyan"))
    working = [each for each in registry.all() if each.broken is None]
    example_agent = next((each.info.name for each in working if each.info.name == registry.default), None)
    example_agent = example_agent or next((each.info.name for each in working), None)
    if example_agent is not None:
        yield ""
        yield f'Call the agent "{example_agent}" in any protocol:'
        yield ""
        yield from _calls(settings, base_url, example_agent)
    yield ""
    yield from _agents(registry, working)
    yield from _row("database", settings.database_shown)
    if settings.grpc.listen is not None:
        yield from _row("grpc", f"A2A 1.0 at {settings.grpc.address or settings.grpc.listen}")
    if settings.workers > 1:
        yield from _row("workers", f"{settings.workers} processes")
    if not settings.has_credentials:
        callers = "every program on this machine" if is_loopback(settings.host) else "everyone who reaches this address"
        yield from _row("access", f"no API keys: {callers} can call the agents")
    if example_agent is not None:
        yield from _row("call", f'{_command()} run {example_agent} "Hello" --url {base_url}')
    if settings.has_demo_agents:
        yield from _row(
            "next", f"serve your own agent: {_command()} serve name=http://HOST:PORT, or name=module:function"
        )
    yield ""
    yield "Press Ctrl-C to stop."


def _command() -> str:
    """Return the command `babelgate` as the reader can type it: with its path, if it was started by a path and is not
    on PATH."""
    started = sys.argv[0]
    return started if Path(started).name == "babelgate" and not shutil.which("babelgate") else "babelgate"


def _calls(settings: Settings, base_url: str, agent: str) -> Iterator[str]:
    examples = [example for adapter in ADAPTERS for example in adapter.examples(base_url, agent)]
    width = max(len(example.label) for example in examples)
    for example in examples:
        curl = example.curl
        if settings.has_credentials:
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
