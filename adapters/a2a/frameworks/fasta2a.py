"""Dialect of A2A in fasta2a 2.1.1 (Pydantic AI) and extended-a2a: thoughts, and the structured output in a data
part."""

from typing import Final

from babelgate.adapters.a2a.frameworks.framework import DecodedContent, Framework
from babelgate.adapters.a2a.wire.task import TYPED_RESULT
from babelgate.canonical import DataPart
from babelgate.canonical.json import as_object


def _read_output(content: DecodedContent, part: DataPart) -> bool:
    """Add a data part that contains the structured output: an object with the only member `result`, and a schema in the
    part's metadata. Return False for any other part."""
    data = as_object(part.data)
    if set(data) != {"result"} or not isinstance(part.metadata.get("json_schema"), dict):
        return False
    content.output = data["result"]
    content.parts.append(part.replace(data=content.output, extra={**part.extra, TYPED_RESULT: {}}))
    return True


FASTA2A: Final = Framework(thoughts={"type": ("thinking", "reasoning")}, read_data=_read_output)
