"""`babelgate run`: run one task of an agent on the terminal."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, cast

import click

from babelgate.canonical.value import Json, JsonObject
from babelgate.gateway.cli.conversation import ConversationError, OpenQuestion, Output, ProgressNote, TextPiece
from babelgate.gateway.cli.errors import USAGE, CliError
from babelgate.gateway.cli.line import ClientConversation

_YES_NO: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


def run(name: str, text: str, protocol: str, url: str, key: str | None, *, whole: bool = False) -> None:
    """Run one task of the agent `name` on the terminal until it ends. Raises CliError if it fails.

    `key` is the API key, if the gateway needs one. `whole` also shows the events that have no text form, by the
    Babelgate extension.
    """
    if not url.startswith(("http://", "https://")):
        raise CliError(f"--url {url}: a URL begins with http:// or https://", code=USAGE)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise CliError("--key: a key is printable ASCII", code=USAGE)
    try:
        line = ClientConversation(protocol, url.rstrip("/"), name, key, whole=whole)
    except ConversationError as error:
        raise CliError(f"--whole: {error}", code=USAGE) from None
    with asyncio.Runner() as runner:
        try:
            questions = runner.run(_show(line.send(text)))
            while questions:
                # Read between two runs of the loop, so that Ctrl-C ends the reading.
                answers = [(question, ask_person(question)) for question in questions]
                questions = runner.run(_show(line.answer(answers)))
        except ConversationError as error:
            raise CliError(" ".join(str(error).split())) from None
        finally:
            runner.run(line.aclose())


async def _show(output: AsyncGenerator[Output]) -> list[OpenQuestion]:
    """Print the text of the agent's answer to stdout as it arrives, and notes to stderr. Return the agent's
    questions."""
    questions: list[OpenQuestion] = []
    open_line = False
    try:
        async with aclosing(output):
            async for each in output:
                match each:
                    case TextPiece():
                        click.echo(each.text, nl=False)
                        if each.text:
                            open_line = not each.text.endswith("\n")
                    case ProgressNote():
                        if open_line and sys.stdout.isatty():
                            click.echo(err=True)
                        click.echo(click.style(f"[{each.text}]", dim=True), err=True)
                    case OpenQuestion():
                        questions.append(each)
    finally:
        if open_line:
            click.echo()
    return questions


def ask_person(question: OpenQuestion) -> Json:
    """Ask a question at the terminal until the typed answer is valid, and return its value. Raises CliError if stdin
    ends."""
    click.echo(click.style(question.text or "The agent awaits an answer.", bold=True), err=True)
    hint, read = prompt_for(question.schema)
    while True:
        click.echo(f"{hint}> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            raise CliError(
                "the agent asks a question, and stdin has no answer: run it in a terminal, or pipe the answer in"
            )
        try:
            return read(line.rstrip("\r\n"))
        except ValueError as error:
            click.echo(str(error), err=True)


def prompt_for(schema: JsonObject | None) -> tuple[str, Callable[[str], Json]]:
    """Return the prompt for an answer with this schema, such as `[y/n] `, and the function that parses the typed text.
    The function raises ValueError.

    Without a schema, any text is an answer.
    """
    kind = (schema or {}).get("type")
    properties: Any = (schema or {}).get("properties")
    if schema is None or kind == "string":
        return "", lambda text: text
    if kind == "boolean":
        return "[y/n] ", _yes_no
    if kind == "object" and isinstance(properties, dict) and len(cast("JsonObject", properties)) == 1:
        ((name, inner),) = cast("JsonObject", properties).items()
        hint, read = prompt_for(cast("JsonObject", inner) if isinstance(inner, dict) else None)
        return hint or f"[{name}] ", lambda text: _object(text) or {name: read(text)}
    return f"[JSON: {json.dumps(schema)}] ", _json


def _yes_no(text: str) -> Json:
    try:
        return _YES_NO[text.strip().lower()]
    except KeyError:
        raise ValueError("Answer y or n.") from None


def _json(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"Answer in JSON: {error}") from None


def _object(text: str) -> JsonObject | None:
    """Return the text as a JSON object, or None if it is not one. A user can always type the complete object as an
    answer."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None
