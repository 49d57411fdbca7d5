"""Three agents of one team."""

from collections.abc import AsyncGenerator

from babelgate import Ask


async def translate(text: str) -> str:
    """Translates a word from English to German."""
    return {"hello": "Hallo", "thanks": "Danke"}.get(text.lower(), "I do not know this word.")


async def review(text: str) -> AsyncGenerator[Ask | str, str]:
    """Asks for an approval before it publishes a text."""
    answer = yield Ask(f"Publish “{text}”?")
    yield "Published." if answer == "yes" else "Not published."


def summarize(text: str) -> str:
    """Returns the first sentence of a text."""
    return text.partition(". ")[0]
