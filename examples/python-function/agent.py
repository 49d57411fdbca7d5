"""An agent that is a Python function."""

from collections.abc import AsyncIterator


async def count_words(text: str) -> AsyncIterator[str]:
    """Counts how often each word occurs."""
    words = text.lower().split()
    for word in sorted(set(words)):
        yield f"{word}: {words.count(word)}\n"
