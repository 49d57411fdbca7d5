"""Decoding of the `generic` events in which BeeAI's agents send thoughts and tool calls, in pieces."""

from collections.abc import Sequence
from typing import Final, Literal

from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.canonical.value import Json, JsonObject

Key = Literal["thought", "tool_name", "tool_input", "tool_output"]

_KEYS: Final[Sequence[Key]] = ("thought", "tool_name", "tool_input", "tool_output")
_KNOWN_MEMBERS: Final = frozenset({*_KEYS, "agent_idx", "message"})


def decode_generic(generic: JsonObject) -> Sequence[tuple[Key, Json]]:
    """Return the pieces of thoughts and tool calls in a `generic` event, in order, each with its kind. Return none for
    an event with any other content.

    The ReAct agent of beeai-framework sends one piece per event; several pieces in one event are accepted, too. Other
    agents send the member `message` to store it in their memory or as additional output: such events have no pieces.
    """
    pieces: list[tuple[Key, Json]] = [(key, generic[key]) for key in _KEYS if generic.get(key) is not None]
    is_text = all(isinstance(value, str) for key, value in pieces if key in ("thought", "tool_name"))
    return pieces if is_text and generic.keys() <= _KNOWN_MEMBERS and generic.get("message") is None else ()


def join_pieces(pieces: Sequence[Json]) -> Json:
    """Return the input or output of a tool call from its pieces. Texts are joined, and parsed if they are JSON. If a
    piece is no text, the last piece is the value."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) < len(pieces):
        return pieces[-1]
    text = "".join(texts)
    value = parse_text(text) if text[:1] in ("{", "[") else ABSENT
    return (text if texts else None) if value is ABSENT else value
