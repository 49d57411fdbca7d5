"""Descriptions of the REST operations of ACP: the types of their bodies."""

from typing import Any, Final

from babelgate.adapters.acp import wire as w
from babelgate.adapters.kit.server.rest import RestDescription, RestOperation

REST: Final = RestDescription(
    official=w.SPEC,
    error=w.Error,
    operations={
        "ping": RestOperation(returns=dict[str, Any]),
        "list_agents": RestOperation(returns=w.AgentsListResponse, query={"limit": "integer", "offset": "integer"}),
        "get_agent": RestOperation(returns=w.AgentManifest),
        "create_run": RestOperation(body=w.RunCreateRequest, returns=w.Run, streams=w.Event, other={202: w.Run}),
        "get_run": RestOperation(returns=w.Run),
        "resume_run": RestOperation(body=w.RunResumeRequest, returns=w.Run, streams=w.Event, other={202: w.Run}),
        "cancel_run": RestOperation(returns=w.Run),
        "list_events": RestOperation(returns=w.RunEventsListResponse, streams=w.Event),
        "get_session": RestOperation(returns=w.Session),
        "get_resource": RestOperation(returns=w.Message),
    },
)
