"""`babelgate record`: save one task of an agent, from its input to its end, to a file. `babelgate replay`: serve an
agent that repeats the task in that file."""

import asyncio
import importlib.metadata
import json
import mimetypes
import socket
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import click

from babelgate.canonical import Answers, FilePart, Interrupt, Message, Receipt, RunInput, Scope, Submission, TextPart
from babelgate.canonical.agent import AGENT_NAME, DEFAULT_OWNER
from babelgate.canonical.event import RunEnded
from babelgate.canonical.fault import FaultError
from babelgate.canonical.hub import TaskFilter
from babelgate.canonical.json import to_json
from babelgate.canonical.message import text_of
from babelgate.canonical.state import TERMINAL, RunStatus
from babelgate.canonical.value import Json
from babelgate.gateway.agents.python.recording import (
    Pace,
    Recorded,
    Recording,
    RecordingError,
    read_recording,
    recording_of,
)
from babelgate.gateway.background import Tasks
from babelgate.gateway.cli.banner import banner
from babelgate.gateway.cli.conversation import ConversationError, Output
from babelgate.gateway.cli.conversation import OpenQuestion as Question
from babelgate.gateway.cli.errors import FAILED, USAGE, CliError
from babelgate.gateway.cli.line import ClientConversation
from babelgate.gateway.cli.listener import bind
from babelgate.gateway.cli.log import set_up_logging
from babelgate.gateway.cli.run import ask_person, prompt_for
from babelgate.gateway.cli.serve import Gateway, leave, open_gateway, serve_until_stopped, server_of
from babelgate.gateway.cli.stop import ShutdownController
from babelgate.gateway.cli.target import AgentTarget, configured_agents, read_agent
from babelgate.gateway.cli.wire import WireRecorder
from babelgate.gateway.files import write_atomically
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.settings.model import Settings

_GRACE: Final = 2.0
"""Maximum seconds in which the gateway of the command stops after the recording. Chosen."""
_FILE: Final = 64 * 2**20
"""Maximum size of a file in a recording, in bytes. Chosen."""
_WORDS: Final = frozenset(
    {"kind", "role", "phase", "status", "reason", "cause", "strategy", "ask", "origin", "finish", "side", "code"}
    | {"blob", "files", "run_id", "message_id", "artifact_id", "interrupt_id"}
)
"""Members of events whose text is a word, id or hash of the model, so that it cannot contain a secret that the agent
repeats."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of `babelgate record`."""

    files: Sequence[Path] = ()
    answers: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    config: Path | None = None
    protocol: str | None = None
    """Protocol of the client that calls the gateway; None submits the task to the hub itself."""


def record(target: str, text: str, out: Path, options: RecordOptions) -> int:
    """Record a task of the agent `target` with the input `text` to the file `out`, and return the exit code. Raises
    CliError for a wrong target, or if the file cannot be written.

    The code is 0 even if the agent failed, because that is recorded, too.
    """
    if not out.absolute().parent.is_dir():
        raise CliError(f"--out {out}: there is no such folder", code=USAGE)
    agent = read_agent(target, configured_agents(options.config), options.headers)
    message = Message(role="user", parts=(TextPart(text=text), *map(_file_part, options.files)))
    set_up_logging("error")
    with tempfile.TemporaryDirectory(prefix="babelgate-", ignore_cleanup_errors=True) as folder:
        recording = asyncio.run(_record(agent, message, options, folder))
    try:
        content = _hide(to_json(recording), agent.secrets)
        write_atomically(out, f"{json.dumps(content, indent=1, ensure_ascii=False)}\n".encode())
    except OSError as error:
        raise CliError(f"--out {out}: it cannot be written: {error.strerror}", code=FAILED) from None
    events = sum(len(run.events) for run in recording.runs)
    click.echo(f"{out}: {len(recording.runs)} runs, {events} events, {len(recording.files)} files", err=True)
    return 0


def _file_part(path: Path) -> FilePart:
    try:
        return FilePart(name=path.name, media_type=mimetypes.guess_type(path.name)[0], inline=path.read_bytes())
    except OSError as error:
        raise CliError(f"--file {path}: it cannot be read: {error.strerror}", code=USAGE) from None


def _hide(value: Any, secrets: Sequence[str]) -> Any:
    """Return a recording without the secrets that were sent to the agent's server, in case the server repeats them."""
    return _replace(value, sorted((each for each in secrets if len(each) >= 4), key=len, reverse=True))


def _replace(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "[redacted]")
        return value
    if isinstance(value, list):
        return [_replace(each, secrets) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: each if name in _WORDS else _replace(each, secrets) for name, each in members.items()}
    return value


async def _record(agent: AgentTarget, message: Message, options: RecordOptions, folder: str) -> Recording:
    entries = {} if agent.name is None else {agent.name: dict(agent.entry)}
    values = {"agents": entries, "database": f"sqlite:///{folder}/gateway.db", "limits": {"inline": _FILE}, "port": 0}
    servers = {agent.url: agent.headers} if agent.name is None and agent.url else {}
    settings, wire = Settings.model_validate(values), WireRecorder()
    with wire.connect(), bind(settings.host, 0) as listener:
        async with open_gateway(settings, [*servers], listener, strict=True, headers=servers) as gateway:
            found = [each.info for each in gateway.registry.all()]
            if len(found) != 1:
                names = ", ".join(each.name for each in found)
                raise CliError(
                    f"{agent.text}: it has several agents: choose one of {names}, as in URL#AGENT", code=USAGE
                )
            answers = iter(options.answers)
            try:
                if options.protocol is None:
                    scope = await _converse(gateway.hub, found[0].name, message, answers)
                else:
                    async with _serve_here(gateway, listener):
                        line = ClientConversation(options.protocol, gateway.url, found[0].name, None)
                        scope = await _call(gateway.hub, line, message, answers)
                records = await gateway.hub.reads.records(DEFAULT_OWNER, scope, inline=True)
            except FaultError as error:
                raise CliError(error.fault.message) from None
        exchanges = wire.as_json(gateway.url, [agent.headers], agent.secrets)
        return recording_of(records, found[0], importlib.metadata.version("babelgate"), exchanges)


async def _converse(hub: GatewayHub, name: str, message: Message, answers: Iterator[str]) -> Scope:
    receipt = await hub.submit(DEFAULT_OWNER, Submission(agent=name, input=RunInput(messages=(message,))))
    while await _status(hub, receipt) is RunStatus.PAUSED:
        interrupts = await hub.reads.open_interrupts(DEFAULT_OWNER, receipt.task_id)
        values = {each.interrupt_id: _answer(_question(each), answers) for each in interrupts}
        receipt = await hub.answer(DEFAULT_OWNER, Answers(task_id=receipt.task_id, values=values))
    return Scope(receipt.thread_id, "task", receipt.task_id)


@asynccontextmanager
async def _serve_here(gateway: Gateway, listener: socket.socket) -> AsyncGenerator[None]:
    ready = asyncio.Event()
    stop = ShutdownController(_GRACE)
    server = server_of(gateway, listener, ready.set, stop)
    with stop.capture_signals():
        serving = Tasks().spawn(server.serve(sockets=[listener]), "gateway that is recorded")
        try:
            await ready.wait()
            yield
            if stop.is_requested:  # by a signal
                raise KeyboardInterrupt
        finally:
            stop.request()
            stop.notify()
            await serving


async def _call(hub: GatewayHub, line: ClientConversation, message: Message, answers: Iterator[str]) -> Scope:
    """Send `message` to the agent through a protocol's client, and reply to its questions with `answers`. Return the
    scope of the ended task, even if it failed.

    Raises CliError if no task has ended.
    """
    wrong = "the client of the protocol created no task for the input"
    try:
        questions = await _questions(line.send(message))
        while questions:
            questions = await _questions(line.answer([(each, _answer(each, answers)) for each in questions]))
    except ConversationError as error:
        wrong = " ".join(str(error).split())
    finally:
        await line.aclose()
    found = await hub.reads.tasks(DEFAULT_OWNER, TaskFilter(), limit=1)
    async for task in found.tasks:
        if task.state in TERMINAL:
            return Scope(task.thread_id, "task", task.task_id)
    raise CliError(wrong)


async def _questions(output: AsyncGenerator[Output]) -> list[Question]:
    async with aclosing(output):
        return [each async for each in output if isinstance(each, Question)]


async def _status(hub: GatewayHub, receipt: Receipt) -> RunStatus:
    """Wait until a run has ended, and return its status. Raises CliError if the log ends before."""
    scope = Scope(receipt.thread_id, "run", receipt.run_id)
    async with aclosing(hub.reads.follow(DEFAULT_OWNER, scope, receipt.seq)) as batches:
        async for batch in batches:
            for each in batch:
                if isinstance(each.event, RunEnded):
                    return each.event.status
    raise CliError("the run did not end")


def _question(interrupt: Interrupt) -> Question:
    return Question(interrupt.interrupt_id, text_of(interrupt.message.parts), interrupt.answer_schema)


def _answer(question: Question, answers: Iterator[str]) -> Json:
    """Return the value of the next `--answer` for a question. If there are no more, ask the person at the terminal.
    Raises CliError for an answer that does not fit."""
    text = next(answers, None)
    if text is None:
        return ask_person(question)
    try:
        return prompt_for(question.schema)[1](text)
    except ValueError as error:
        raise CliError(f"--answer {text}: {question.text} {error}", code=USAGE) from None


def replay(path: Path, name: str | None, port: int, pace: Pace) -> None:
    """Serve the agent in a recording until a signal arrives. `name` replaces its recorded name, unless it is None.
    Raises CliError if the file is no recording, or the name is invalid."""
    try:
        recording = read_recording(path)
    except RecordingError as error:
        raise CliError(str(error), code=USAGE) from None
    name = name or recording.agent.name
    if not AGENT_NAME.fullmatch(name):
        raise CliError(f"--name {name}: not a valid name for an agent (a-z, 0-9, - _ .)", code=USAGE)
    with tempfile.TemporaryDirectory(prefix="babelgate-", ignore_cleanup_errors=True) as folder:
        settings = Settings.model_validate(
            {"agents": {}, "database": f"sqlite:///{folder}/gateway.db", "port": port, "log_level": "warning"}
        )

        def print_ready(gateway: Gateway) -> None:
            click.echo("\n".join(banner(settings, gateway.url, gateway.registry)))

        serve_until_stopped(settings, (), print_ready, strict=True, more={name: Recorded(recording, pace)})
    leave()
