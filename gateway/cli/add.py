"""`babelgate add`: detect the protocol of a server, and write its agents into the configuration file."""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml
from pydantic import ValidationError

from babelgate.adapters.kit.client.agent_name import legal_name
from babelgate.conformance.wire.credentials import hide_credentials
from babelgate.gateway.agents.detection import Detected, Detector, Undetected
from babelgate.gateway.cli.errors import USAGE, CliError
from babelgate.gateway.cli.target import read_header
from babelgate.gateway.settings.load import ConfigError, load, read_file
from babelgate.gateway.settings.model import AgentSettings
from babelgate.gateway.storage.permission import PRIVATE_FILE

_TARGET = re.compile(r"(?:([^=:/#]+)=)?(https?://[^#]+)(?:#(.+))?", re.DOTALL)


def add(target: str, path: Path, headers: Sequence[str], protocol: str | None) -> None:
    """Detect the agents of the server at `target`, and add them to the configuration file at `path`. Raises CliError
    for a wrong target, if no agents are detected, or if the file already has an agent of that name."""
    match = _TARGET.fullmatch(target)
    if match is None:
        raise CliError(f"{hide_credentials(target)}: this is not a URL; give http://… or name=http://…", code=USAGE)
    name, url, agent = match[1], match[2].rstrip("/"), match[3]
    header_values = dict(read_header(each) for each in headers)
    with asyncio.Runner() as runner:
        detected = runner.run(_detect(url, _expand_variables(header_values), protocol))
    click.echo(detected.summary, err=True)
    chosen = _choose_agents(detected, name, url, agent)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    configured: Mapping[str, Any] = (read_file(path).get("agents") or {}) if before else {}
    entries: dict[str, dict[str, Any]] = {}
    for wanted, entry in chosen:
        if wanted in configured:
            raise CliError(f"{path} has an agent {wanted} already: give this one another name, as in {wanted}-2={url}")
        entries[wanted] = entry | ({"headers": header_values} if header_values else {})
    _write(path, before, insert_agents(before, entries))
    for wanted in entries:
        click.echo(f"{wanted} is in {path}: serve it with babelgate serve --config {path}")


def _expand_variables(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers with `${VARIABLE}` replaced by its value, for the detection. The file keeps the reference to
    the variable. Raises CliError for a variable that is not set."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise CliError(f"--header: the variable {match[1]} is not set")
        return os.environ[match[1]]

    return {name: re.sub(r"\$\{(\w+)\}", value, text) for name, text in headers.items()}


async def _detect(url: str, headers: Mapping[str, str], protocol: str | None) -> Detected:
    try:
        AgentSettings(url=url)
    except ValidationError as error:
        raise CliError(
            f"{hide_credentials(url)}: {error.errors()[0]['msg'].removeprefix('Value error, ')}", code=USAGE
        ) from None
    try:
        async with Detector() as detector:
            return await detector.detect(url, headers, protocol)
    except (Undetected, ValueError) as error:
        raise CliError(str(error)) from None


def _choose_agents(
    detected: Detected, name: str | None, url: str, agent: str | None
) -> list[tuple[str, dict[str, Any]]]:
    """Return the selected agents, each as its name and its entry in the configuration file.

    `agent` is the name of the only agent to select, as the server calls it; None selects all. `name` is the name in the
    file; if it is None, it is made from the server's name. Raises CliError if the server has no such agent, or if there
    is a `name` and several agents are selected.
    """
    upstream = detected.upstream
    found = [
        (info, at) for info, at in detected.agents if agent is None or agent in (upstream.name_of(info), info.name)
    ]
    if not found:
        names = ", ".join(upstream.name_of(info) for info, _ in detected.agents)
        raise CliError(f"{url} has no agent {agent}; it has {names}")
    if name is not None and len(found) > 1:
        names = ", ".join(upstream.name_of(info) for info, _ in found)
        raise CliError(f"{url} has several agents: choose one for {name}, as in {name}={url}#agent; it has {names}")
    chosen: list[tuple[str, dict[str, Any]]] = []
    for info, at in found:
        entry: dict[str, Any] = {"url": at, "protocol": upstream.protocol}
        if not upstream.alone:
            entry["agent"] = upstream.name_of(info)
        chosen.append((name or legal_name(info.name), entry))
    return chosen


def _write(path: Path, before: str, after: str) -> None:
    """Write the new text `after` to the configuration file. If it is not a valid configuration, restore the text
    `before`. Raises CliError with its mistakes in that case."""
    if not path.exists():
        path.touch(PRIVATE_FILE)  # the file contains headers, which may hold keys
    path.write_text(after, encoding="utf-8")
    try:
        load(path)
    except ConfigError as error:
        if before:
            path.write_text(before, encoding="utf-8")
        else:
            path.unlink()
        raise CliError(*error.problems) from None


def insert_agents(text: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a configuration file with new entries at the end of its `agents:`.

    Everything else stays unchanged, including comments. Raises CliError if the form of the file allows no further
    lines.
    """
    root = yaml.compose(text) if text.strip() else None
    pairs: Any = root.value if isinstance(root, yaml.MappingNode) else []
    agents = next((value for key, value in pairs if key.value == "agents"), None)
    if not isinstance(agents, yaml.MappingNode) or not agents.value:
        if agents is not None:
            raise CliError("agents: is empty: take the line out of the file, or put an agent below it")
        lead = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{lead}agents:\n{_lines(entries, '  ')}"
    if agents.flow_style:
        raise CliError(
            "agents: is written on one line, in braces: write each agent on a separate line, then run add again"
        )
    indent = " " * agents.value[0][0].start_mark.column
    lines = text.splitlines(keepends=True)
    last: Any = agents.value[-1][1].end_mark
    at: int = last.line + (1 if last.column else 0)
    while at > 0 and not lines[at - 1].strip():  # blank lines after the last agent belong to what follows
        at -= 1
    if lines[at - 1 : at] and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    return "".join(lines[:at]) + _lines(entries, indent) + "".join(lines[at:])


def _lines(entries: Mapping[str, Mapping[str, Any]], indent: str) -> str:
    lines = ""
    for name, entry in entries.items():
        dump: Any = yaml.safe_dump
        flow: str = dump(dict(entry), default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
        lines += f"{indent}{name}: {flow.strip()}\n"
    return lines
