"""How many examples a property is shown, and those that take more or less of them."""

from typing import Final

from hypothesis import settings

USUAL: Final = 50
"""To make an example often takes longer than what is shown of it."""
FEW: Final = 5
"""Of each property in a quick run."""


def examples(count: int) -> settings:
    return settings(max_examples=min(count, settings().max_examples) if settings().max_examples == FEW else count)
