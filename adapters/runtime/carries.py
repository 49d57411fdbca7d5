"""Features that the minimal runtime carries. Its events are the records of the log."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

VERSION: Final = "runtime-v1"

_SERVED: Final = "docs/protocols/runtime.md, What is served"
_SAID: Final = "docs/protocols/runtime.md, What a run says"

CARRIES: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.FILE_BYTES: lossy(
        "those above limits.inline are named by their hash, which is the gateway's choice", _SAID
    ),
    Feature.UPLOAD: dropped("files come with the input only, which is the gateway's choice", _SERVED),
    Feature.CALLER_TOOLS: whole("for agents that look at the run's configuration", _SERVED),
}
