"""Dialect of fasta2a 2.1.1 (Pydantic AI), and of extended-a2a."""

from typing import Final

from babelgate.adapters.a2a.frameworks.framework import DecodedContent, Framework
from babelgate.adapters.a2a.wire.task import TYPED_RESULT
from babelgate.canonical import DataPart
from babelgate.canonical.json import as_object


def _read_output(content: DecodedContent, part: DataPart) -> bool:
    """Add the structured output, which is the member `result` of an object with a schema. Return False if the part has
    no such object."""
    data = as_object(part.data)
    if set(data) != {"result"} or not isinstance(part.metadata.get("json_schema"), dict):
        return False
    content.output = data["result"]
    content.parts.append(part.replace(data=content.output, extra={**part.extra, TYPED_RESULT: {}}))
    return True


FASTA2A: Final = Framework(thoughts={"type": ("thinking", "reasoning")}, read_data=_read_output)
