"""Dialect of A2A in crewai 1.15.30: the structured output in an artifact with a certain id."""

from typing import Final

from babelgate.adapters.a2a.frameworks.framework import DecodedContent, Framework
from babelgate.canonical import DataPart


def _read_artifact(content: DecodedContent, artifact_id: str, task_id: str | None) -> None:
    """Set the structured output of the content to the data of the artifact `result_<task id>`, if that has exactly one
    part. Do nothing for other artifacts, and if the id of the task is not known (None)."""
    if task_id and artifact_id == f"result_{task_id}" and len(content.parts) == 1 and content.output is None:
        [part] = content.parts
        content.output = part.data if isinstance(part, DataPart) else None


CREWAI: Final = Framework(read_artifact=_read_artifact)
