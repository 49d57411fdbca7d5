"""What BeeAI's agents put into `generic` events: thoughts and calls of tools, in pieces."""

from collections.abc import Sequence
from typing import Final, Literal

from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.canonical.value import Json, JsonObject

Key = Literal["thought", "tool_name", "tool_input", "tool_output"]

_KEYS: Final[Sequence[Key]] = ("thought", "tool_name", "tool_input", "tool_output")
_OTHERS: Final = frozenset({*_KEYS, "agent_idx", "message"})


def decode_generic(generic: JsonObject) -> Sequence[tuple[Key, Json]]:
    """The pieces, in their order; none of an event that is something else.

    beeai-framework's ReAct agent yields one at a time, its UI knows them all in one. `message` is what other agents of
    it keep in their memory, and what they say besides."""
    told: list[tuple[Key, Json]] = [(key, generic[key]) for key in _KEYS if generic.get(key) is not None]
    is_text = all(isinstance(value, str) for key, value in told if key in ("thought", "tool_name"))
    return told if is_text and generic.keys() <= _OTHERS and generic.get("message") is None else ()


def join_pieces(pieces: Sequence[Json]) -> Json:
    """Of one value: JSON in pieces of text, or text."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) < len(pieces):
        return pieces[-1]
    text = "".join(texts)
    value = parse_text(text) if text[:1] in ("{", "[") else ABSENT
    return (text if texts else None) if value is ABSENT else value
