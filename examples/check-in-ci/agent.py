"""The agent that is checked."""

import asyncio
from collections.abc import AsyncGenerator

from babelgate import Ask


async def greeter(text: str) -> AsyncGenerator[Ask | str, str]:
    """Greets the caller, asks who it is, fails or takes long, as requested."""
    match text:
        case "fail":
            raise ValueError("The caller asked for a failure.")
        case "ask":
            name = yield Ask("What is your name?")
            yield f"Hello, {name}!"
        case "wait":
            await asyncio.sleep(30)
            yield "Done."
        case _:
            for word in ("Hello, ", "caller", "!"):
                yield word
