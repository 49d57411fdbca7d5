"""How many examples a property is shown that takes more than the hundred of the profile, or less."""

from typing import Final

from hypothesis import settings

FEW: Final = 5
"""Of each property in a quick run."""


def examples(count: int) -> settings:
    return settings(max_examples=min(count, settings().max_examples) if settings().max_examples == FEW else count)
