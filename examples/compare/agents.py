"""Two agents for the same tasks: each adds the numbers in a text."""

import re


async def careful(text: str) -> str:
    """Adds all numbers, also negative ones and decimals."""
    total = sum(float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text))
    return f"{total:g}"


async def hasty(text: str) -> str:
    """Adds all digits that stand together."""
    return str(sum(int(number) for number in re.findall(r"\d+", text)))
