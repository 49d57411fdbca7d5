"""Responses of other servers. Only members that the gateway needs are required, because the servers of this protocol
differ widely."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[str, Field(min_length=1, max_length=1024)]


class _Reply(BaseModel):
    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)


class Artifact(_Reply):
    """An artifact of a task at another server."""

    artifact_id: Id
    file_name: str | None = None
    relative_path: str | None = None
    agent_created: bool | None = None


class Task(_Reply):
    """A task at another server."""

    task_id: Id
    # null, {} or the object: the Python SDK 1.0.2 drops its members.
    additional_input: Any = None


class Step(_Reply):
    """A step of a task at another server."""

    step_id: str | None = None
    status: str | None = None
    is_last: bool | None = None
    name: str | None = None
    output: str | None = None
    additional_output: Any = None
    artifacts: list[Artifact] | None = None


class AgentInfo(_Reply):
    """Agent description: GET /ap/v2/agent/info of the unreleased v2."""

    name: str
    version: str | None = None
    description: str | None = None
