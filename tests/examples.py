"""How many examples a property is shown, and those that take more or less of them."""

from typing import Final

from hypothesis import settings

USUAL: Final = 50
"""To make an example often takes longer than what is shown of it."""
FEW: Final = 5
"""Examples of each property in a quick run and in a sample."""


def examples(count: int) -> settings:
    """Return the settings of a property that takes `count` examples where the whole suite runs."""
    return settings(max_examples=min(count, FEW) if settings().max_examples == FEW else count)
