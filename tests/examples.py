"""Number of examples of a property test, and settings for properties that need more or fewer."""

from typing import Final

from hypothesis import settings

USUAL: Final = 50
"""Examples of a property by default. Creating an example often takes longer than testing it."""
FEW: Final = 5
"""Examples of each property in a quick run and in a sample."""


def examples(count: int) -> settings:
    """Return the settings of a property with `count` examples in the whole suite."""
    return settings(max_examples=min(count, FEW) if settings().max_examples == FEW else count)
