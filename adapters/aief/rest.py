"""REST operations of AIEF's Agent Protocol: the types of their bodies."""

from typing import Final

from babelgate.adapters.aief.wire import types as w
from babelgate.adapters.kit.server.rest import JsonType, RestDescription, RestOperation

_PAGE: Final[dict[str, JsonType]] = {"current_page": "integer", "page_size": "integer"}

REST: Final = RestDescription(
    official=w.SPEC,
    error=w.Error,
    operations={
        "get_versions": RestOperation(returns=w.Versions),
        "get_info": RestOperation(returns=w.AgentInfo),
        "list_tasks": RestOperation(returns=w.TaskListResponse, query=_PAGE),
        "create_task": RestOperation(body=w.RequestBody, is_body_optional=True, returns=w.TaskWithSteps),
        "get_task": RestOperation(returns=w.TaskWithSteps),
        "list_steps": RestOperation(returns=w.TaskStepsListResponse, query=_PAGE),
        "execute_step": RestOperation(body=w.RequestBody, is_body_optional=True, returns=w.Step),
        "get_step": RestOperation(returns=w.Step),
        "list_artifacts": RestOperation(returns=w.TaskArtifactsListResponse, query=_PAGE),
        "upload_artifact": RestOperation(body=w.Upload, body_media_type="multipart/form-data", returns=w.Artifact),
        "download_artifact": RestOperation(returns=bytes, media_type="application/octet-stream"),
    },
)
