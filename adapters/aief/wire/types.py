"""Messages of AIEF's Agent Protocol: OpenAPI v1, with the members that its servers and clients add.

Names are those of the document. Members that the document calls nullable are written as null, and all others are always
present.
"""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

SPEC: Final = "https://github.com/agi-inc/agent-protocol/blob/1191f6c/schemas/openapi.yml"
"""URL of the document that comments cite as OpenAPI v1."""

STEP: Final = "step"
"""Name of a `Native` event with those members of another server's step that OpenAPI v1 does not define."""

Status = Literal["created", "running", "completed"]
Object = dict[str, Any]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="allow")


def dump(value: BaseModel) -> bytes:
    """Return a message as JSON bytes."""
    return value.model_dump_json().encode()


class RequestBody(_Wire):
    """Body of the requests that create a task or execute a step. The document has two types with the same members."""

    input: str | None = None
    additional_input: Object | None = None
    """Additional input as an object. The document does not allow null, but clients send it."""


class Artifact(_Wire):
    artifact_id: str
    agent_created: bool
    file_name: str
    relative_path: str | None = None
    created_at: str
    """Time of creation. The document does not have it, but agbenchmark refuses an artifact without it."""


class Task(_Wire):
    task_id: str
    input: str | None = None
    additional_input: Object = Field(default_factory=dict)
    artifacts: list[Artifact] = Field(default_factory=list[Artifact])
    created_at: str


class Step(_Wire):
    task_id: str
    step_id: str
    name: str | None = None
    status: Status
    is_last: bool = False
    input: str | None = None
    additional_input: Object = Field(default_factory=dict)
    output: str | None = None
    additional_output: Object | None = None
    artifacts: list[Artifact] = Field(default_factory=list[Artifact])
    created_at: str


class TaskWithSteps(Task):
    """Task in the response to a request for one task. The document has no `steps`, but its pages and the Python SDK
    do."""

    # Not in lists of tasks: the Python SDK 1.0.2 omits it there, too.
    steps: list[Step] = Field(default_factory=list[Step])


class Pagination(_Wire):
    total_items: int
    total_pages: int
    current_page: int
    page_size: int


class TaskListResponse(_Wire):
    tasks: list[Task]
    pagination: Pagination


class TaskStepsListResponse(_Wire):
    steps: list[Step]
    pagination: Pagination


class TaskArtifactsListResponse(_Wire):
    artifacts: list[Artifact]
    pagination: Pagination


class Error(_Wire):
    message: str


class Versions(_Wire):
    versions: list[str]


class Upload(_Wire):
    """Form fields of an upload."""

    file: bytes
    relative_path: str | None = None
    """Folder of the file, relative to the agent's workspace."""


class AgentInfo(_Wire):
    """Agent description: GET /ap/v2/agent/info of the unreleased v2."""

    name: str
    protocol: int
    version: str
    # Required in v2, with the type and the default of each option.
    config_options: Object = Field(default_factory=dict)
    description: str = ""
    url: str
