"""Output of the reference agents. Runs in the environment of an SDK, so it imports the standard library only."""

from collections.abc import Iterator


def pieces(text: str, *, streams: bool) -> Iterator[tuple[str, bool, bool]]:
    """Yield triples (text, is first, is last): one for each word if `streams`, and otherwise one for the whole text."""
    words = text.split() if streams else [text]
    for index, word in enumerate(words):
        yield f" {word}" if index else word, not index, index == len(words) - 1
