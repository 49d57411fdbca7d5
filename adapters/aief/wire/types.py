"""The wire types of AIEF's Agent Protocol: OpenAPI v1, with the fields that the servers and clients around it add.

Names are verbatim. What the document calls nullable is written as null, everything else is always there.
"""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

SPEC: Final = "https://github.com/agi-inc/agent-protocol/blob/1191f6c/schemas/openapi.yml"
"""What comments call OpenAPI v1."""

STEP: Final = "step"
"""The name of a `Native` event: members of another server's step that the document does not have."""

Status = Literal["created", "running", "completed"]
Object = dict[str, Any]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="allow")


def dump(value: BaseModel) -> bytes:
    return value.model_dump_json().encode()


class RequestBody(_Wire):
    """TaskRequestBody and StepRequestBody, which are alike."""

    input: str | None = None
    additional_input: Object | None = None
    """The document has no null here; clients send it."""


class Artifact(_Wire):
    artifact_id: str
    agent_created: bool
    file_name: str
    relative_path: str | None = None
    created_at: str
    """Not in the document, and without it agbenchmark refuses the artifact."""


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
    """A task that is asked for alone. The document has no `steps`, its pages and the Python SDK have."""

    # Not in lists of tasks: there the Python SDK 1.0.2 has none, too.
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


class AgentInfo(_Wire):
    """GET /ap/v2/agent/info of the unreleased v2."""

    name: str
    protocol: int
    version: str
    # Required in v2, with the type and the default of each.
    config_options: Object = Field(default_factory=dict)
    description: str = ""
    url: str
