"""Table of how the minimal runtime carries each feature. Most are carried whole, because its events are the records of
the log."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

VERSION: Final = "runtime-v1"

_SERVED: Final = "docs/protocols/runtime.md, What is served"
_SAID: Final = "docs/protocols/runtime.md, What a run says"

CARRIES: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.FILE_BYTES: lossy("a file larger than limits.inline is named by its hash, by choice of the gateway", _SAID),
    Feature.UPLOAD: dropped("files are sent only with the input, by choice of the gateway", _SERVED),
    Feature.CALLER_TOOLS: whole("for agents that read the run's configuration", _SERVED),
}
