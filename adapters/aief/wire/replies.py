"""What other servers answer: the wire types as they are read. Only what is needed must be there, because no two servers
of this protocol answer alike."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[str, Field(min_length=1, max_length=1024)]


class _Reply(BaseModel):
    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)


class Artifact(_Reply):
    artifact_id: Id
    file_name: str | None = None
    relative_path: str | None = None
    agent_created: bool | None = None


class Task(_Reply):
    task_id: Id
    # null, {} or the object: the Python SDK 1.0.2 drops its members.
    additional_input: Any = None


class Step(_Reply):
    step_id: str | None = None
    status: str | None = None
    is_last: bool | None = None
    name: str | None = None
    output: str | None = None
    additional_output: Any = None
    artifacts: list[Artifact] | None = None


class AgentInfo(_Reply):
    """GET /ap/v2/agent/info of the unreleased v2."""

    name: str
    version: str | None = None
    description: str | None = None
