"""Features that the toy protocol carries: text and faults."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped

VERSION: Final = "1"

CARRIES: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, dropped("there is one text in and one text out", "Toy 1, Answer")),
    Feature.TEXT: FULL,
    Feature.FAULT: FULL,
}
