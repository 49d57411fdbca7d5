"""Comparison of the results that two protocols show of the same scenario. It compares aspects such as the state, the
text and the files. A declared loss of some features excuses a difference in an aspect."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from babelgate.conformance.across.model import File, Shot
from babelgate.conformance.wire.exchange import InvalidJson, parse_json

ASPECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "answer": (),
    "state": ("cancel",),
    "states": ("stream",),
    "conversation": ("history",),
    # A protocol without a form for data may show it as text.
    "text": ("text", "data", "structured-output"),
    "data": ("data", "structured-output"),
    "files": ("artifact", "artifact-append", "file-bytes", "file-url", "upload"),
    "media-types": ("artifact", "file-bytes"),
    "questions": ("question", "questions"),
    "question-data": ("question", "questions"),
    "schemas": ("answer-schema",),
    "error": ("fault",),
}
"""Compared aspects, each with the features whose declared loss (Babelgate-Loss) excuses a difference."""


@dataclass(frozen=True, slots=True)
class Difference:
    aspect: str
    here: Any
    there: Any
    declared: str = ""
    """Loss that one of the two protocols declared and that explains the difference. Empty if neither declared one."""


def aspects_of(shot: Shot) -> Mapping[str, Any]:
    """Return the value of each aspect of `ASPECTS` for what one protocol showed at one moment. None means that the
    protocol does not show the aspect. If the result could not be read, return only `answer`, with the reason."""
    meaning = shot.meaning
    if meaning is None:
        return {"answer": shot.fault}
    return {
        "answer": "",
        "state": meaning.state,
        "states": None if meaning.states is None else tuple(meaning.states),
        "conversation": meaning.conversation or None,
        "text": tuple(meaning.texts),
        "data": tuple(meaning.data),
        "files": tuple(sorted((file.name, _content(file)) for file in meaning.files)),
        "media-types": _types(meaning.files),
        "questions": tuple(each.text for each in meaning.questions),
        "question-data": tuple(each.value for each in meaning.questions),
        "schemas": tuple(each.schema for each in meaning.questions),
        "error": meaning.error,
    }


def _types(files: Sequence[File]) -> Any:
    return (
        None if any(file.media_type is None for file in files) else tuple(sorted((f.name, f.media_type) for f in files))
    )


def differences(here: Shot, there: Shot) -> Iterator[Difference]:
    here_aspects, there_aspects = aspects_of(here), aspects_of(there)
    if here_aspects["answer"] or there_aspects["answer"]:
        if bool(here_aspects["answer"]) != bool(there_aspects["answer"]):
            yield Difference("answer", here_aspects["answer"] or "played", there_aspects["answer"] or "played")
        return
    for aspect in ASPECTS:
        one, other = _comparable(aspect, here_aspects, there_aspects)
        is_same = _COMPARISONS.get(aspect, _is_same)
        if one is None or other is None or is_same(one, other):
            continue
        yield Difference(aspect, one, other, declared_loss(here, aspect) or declared_loss(there, aspect))


def _comparable(aspect: str, here: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the values of an aspect in `here` and in `there`, reduced to the questions or files that both have.

    So a missing question or file is reported once, and not again for its data, schema or media type.
    """
    one, other = here[aspect], there[aspect]
    if aspect in ("question-data", "schemas"):
        both = min(len(one), len(other))
        return one[:both], other[:both]
    if aspect == "media-types" and one is not None and other is not None:
        names = {name for name, _ in one} & {name for name, _ in other}
        return tuple(e for e in one if e[0] in names), tuple(e for e in other if e[0] in names)
    return one, other


def _content(file: File) -> bytes:
    """Return the bytes of a file; JSON is rewritten in canonical form, so that whitespace does not count as a
    difference."""
    if file.media_type != "application/json" and not file.name.endswith(".json"):
        return file.content
    try:
        return _canonical(parse_json(file.content)).encode()
    except InvalidJson:
        return file.content


def _is_same_text(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return True if the messages of both sides, joined without a separator or with line feeds, are equal. A protocol
    without messages shows all of them as one text."""
    return "".join(one) == "".join(other) or "\n".join(one) == "\n".join(other)


def _is_same_error(one: str, other: str) -> bool:
    """Return True if two error messages are equal, even if one begins with the class of the exception, such as
    `ValueError: `, and the other does not.

    LangGraph has the class in a separate member. Other protocols put it before the message, or omit it.
    """
    return other in (one, _CLASS.sub("", one)) or one == _CLASS.sub("", other)


def _is_same(one: Any, other: Any) -> bool:
    return _canonical(one) == _canonical(other)


def _canonical(value: Any) -> str:
    """Return the value as JSON with sorted keys, to compare two values. 1.0 is written as 1, but true is not."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return json.dumps(json.loads(text, parse_float=lambda number: _whole(float(number))), sort_keys=True)


def _whole(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def declared_loss(shot: Shot, aspect: str) -> str:
    """Return the losses that the server declared and that explain a difference in this aspect, as text: `acp declares
    data, …`. Return an empty string if there are no such losses."""
    losses = ", ".join(f"{name}, {shot.losses[name]}" for name in ASPECTS[aspect] if name in shot.losses)
    return f"{shot.protocol} declares {losses}" if losses else ""


def show(value: Any) -> str:
    """Return a value of an aspect as text for reports. Bytes are cut after 40, with their number."""
    match value:
        case str():
            return repr(value)
        case bytes():
            return _bytes(value)
        case tuple():
            return f"[{', '.join(show(each) for each in cast('tuple[Any, ...]', value))}]"
        case _:
            return repr(value)


def _bytes(content: bytes) -> str:
    return f"{content[:40]!r}{'…' if len(content) > 40 else ''} ({len(content)} bytes)"


_CLASS: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_.]{0,99}: ")
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"text": _is_same_text, "error": _is_same_error}
