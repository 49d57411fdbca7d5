"""In what two protocols differ: by aspects, each with the losses that excuse it."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from babelgate.conformance.across.model import File, Shot
from babelgate.conformance.wire.exchange import NotJson, parse_json

ASPECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "answer": (),
    "state": ("cancel",),
    "states": ("stream",),
    "conversation": ("history",),
    # Where data has no form of its own, it may be said in words.
    "text": ("text", "data", "structured-output"),
    "data": ("data", "structured-output"),
    "files": ("artifact", "artifact-append", "file-bytes", "file-url", "upload"),
    "media-types": ("artifact", "file-bytes"),
    "questions": ("question", "questions"),
    "question-data": ("question", "questions"),
    "schemas": ("answer-schema",),
    "error": ("fault",),
}
"""What is compared, and the features whose declared loss excuses a difference in it (Babelgate-Loss)."""


@dataclass(frozen=True, slots=True)
class Difference:
    aspect: str
    here: Any
    there: Any
    declared: str = ""
    """The loss that one of the two declared, and nothing if this is one that nobody said a word of."""


def aspects_of(shot: Shot) -> Mapping[str, Any]:
    """What can be compared of it; None where the protocol does not tell it."""
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
    ours, theirs = aspects_of(here), aspects_of(there)
    if ours["answer"] or theirs["answer"]:
        if bool(ours["answer"]) != bool(theirs["answer"]):
            yield Difference("answer", ours["answer"] or "played", theirs["answer"] or "played")
        return
    for aspect in ASPECTS:
        one, other = _comparable(aspect, ours, theirs)
        is_same = _COMPARISONS.get(aspect, _is_same)
        if one is None or other is None or is_same(one, other):
            continue
        yield Difference(aspect, one, other, declared_loss(here, aspect) or declared_loss(there, aspect))


def _comparable(aspect: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[Any, Any]:
    """What belongs to a question or a file is compared for those that both have: that one is missing is told once."""
    one, other = ours[aspect], theirs[aspect]
    if aspect in ("question-data", "schemas"):
        both = min(len(one), len(other))
        return one[:both], other[:both]
    if aspect == "media-types" and one is not None and other is not None:
        names = {name for name, _ in one} & {name for name, _ in other}
        return tuple(e for e in one if e[0] in names), tuple(e for e in other if e[0] in names)
    return one, other


def _content(file: File) -> bytes:
    """Of JSON, what it says and not how it is spaced."""
    if file.media_type != "application/json" and not file.name.endswith(".json"):
        return file.content
    try:
        return _canonical(parse_json(file.content)).encode()
    except NotJson:
        return file.content


def _is_same_text(one: Sequence[str], other: Sequence[str]) -> bool:
    """Not every protocol has messages: one that has none says one after the other, or each on a line of its own."""
    return "".join(one) == "".join(other) or "\n".join(one) == "\n".join(other)


def _is_same_error(one: str, other: str) -> bool:
    """LangGraph has the class of an exception in a member of its own; others have it before the message, or not."""
    return other in (one, _CLASS.sub("", one)) or one == _CLASS.sub("", other)


def _is_same(one: Any, other: Any) -> bool:
    return _canonical(one) == _canonical(other)


def _canonical(value: Any) -> str:
    """As JSON, which has true beside 1, and one kind of numbers."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return json.dumps(json.loads(text, parse_float=lambda number: _whole(float(number))), sort_keys=True)


def _whole(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def declared_loss(shot: Shot, aspect: str) -> str:
    """What the server said of a loss that explains a difference in this aspect."""
    told = ", ".join(f"{name}, {shot.losses[name]}" for name in ASPECTS[aspect] if name in shot.losses)
    return f"{shot.protocol} declares {told}" if told else ""


def show(value: Any) -> str:
    """One value of an aspect, for people."""
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
