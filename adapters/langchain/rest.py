"""REST operations of LangGraph Platform and the Agent Protocol: the types of their bodies."""

from typing import Any, Final

from babelgate.adapters.kit.server.rest import JsonType, RestDescription, RestOperation
from babelgate.adapters.langchain.wire import SPEC, assistants, bodies, crons, requests, store
from babelgate.canonical.value import JsonObject

_LAST_EVENT_ID: Final[dict[str, JsonType]] = {"Last-Event-ID": "string"}
_CANCEL: Final[dict[str, JsonType]] = {"cancel_on_disconnect": "boolean"}
_RESULT: Final = bodies.Waited | JsonObject
"""Body of a finished wait: an Agent Protocol result, or the values of LangGraph's state."""

REST: Final = RestDescription(
    official=SPEC,
    error=bodies.Error,
    operations={
        "ok": RestOperation(returns=bodies.Health, query={"check_db": "boolean"}),
        "info": RestOperation(returns=bodies.Info),
        "thread.create": RestOperation(body=requests.ThreadCreate, is_body_optional=True, returns=bodies.Thread),
        "thread.search": RestOperation(body=requests.ThreadSearch, is_body_optional=True, returns=list[bodies.Thread]),
        "thread.count": RestOperation(body=requests.ThreadCount, is_body_optional=True, returns=int),
        "thread.prune": RestOperation(body=requests.ThreadsPrune, returns=bodies.Pruned),
        "thread.get": RestOperation(returns=bodies.Thread, query={"include": "string"}),
        "thread.change": RestOperation(
            body=requests.ThreadPatch, returns=bodies.Thread, other={204: None}, headers={"Prefer": "string"}
        ),
        "thread.delete": RestOperation(other={204: None}),
        "thread.copy": RestOperation(returns=bodies.Thread),
        "state.get": RestOperation(returns=bodies.State, query={"subgraphs": "boolean"}),
        "state.at": RestOperation(body=requests.StateAt, returns=bodies.State),
        "state.update": RestOperation(body=requests.StateUpdate, returns=bodies.StateReference),
        "state.list_history": RestOperation(returns=list[bodies.State], query={"limit": "integer", "before": "string"}),
        "state.search_history": RestOperation(
            body=requests.HistorySearch, is_body_optional=True, returns=list[bodies.State]
        ),
        "run.create": RestOperation(body=requests.RunCreate, returns=bodies.Run),
        "run.create_wait": RestOperation(body=requests.RunCreate, returns=_RESULT),
        "run.create_stream": RestOperation(body=requests.RunCreate, streams=Any, is_stream_only=True),
        "run.create_batch": RestOperation(body=list[requests.RunCreate], returns=list[bodies.Run]),
        "run.search": RestOperation(body=requests.RunSearch, is_body_optional=True, returns=list[bodies.Run]),
        "run.list_runs": RestOperation(
            returns=list[bodies.Run],
            query={"limit": "integer", "offset": "integer", "status": "string", "select": "string"},
        ),
        "run.get": RestOperation(returns=bodies.Run),
        "join.join": RestOperation(returns=_RESULT, query=_CANCEL),
        "join.wait": RestOperation(returns=bodies.Waited, query=_CANCEL),
        "join.stream": RestOperation(
            streams=Any, is_stream_only=True, query={"stream_mode": "string", **_CANCEL}, headers=_LAST_EVENT_ID
        ),
        "join.stream_thread": RestOperation(
            streams=Any, is_stream_only=True, query={"stream_modes": "string"}, headers=_LAST_EVENT_ID
        ),
        "cancel.cancel": RestOperation(
            returns=bodies.Run,
            other={204: None},
            query={"wait": "boolean", "action": "string"},
        ),
        "cancel.cancel_many": RestOperation(
            body=requests.RunsCancel, is_body_optional=True, other={204: None}, query={"action": "string"}
        ),
        "cancel.delete": RestOperation(other={204: None}),
        "event.stream": RestOperation(body=bodies.EventSubscription, streams=Any, is_stream_only=True),
        "event.command": RestOperation(body=bodies.Command, returns=bodies.CommandReply),
        "assistant.search_agents": RestOperation(
            body=assistants.AgentSearch, is_body_optional=True, returns=list[bodies.Agent]
        ),
        "assistant.get_agent": RestOperation(returns=bodies.Agent),
        "assistant.agent_schemas": RestOperation(returns=bodies.AgentSchemas),
        "assistant.file": RestOperation(returns=bytes, media_type="application/octet-stream"),
        "assistant.search": RestOperation(
            body=assistants.AssistantSearch, is_body_optional=True, returns=list[bodies.Assistant]
        ),
        "assistant.count": RestOperation(body=assistants.AssistantCount, is_body_optional=True, returns=int),
        "assistant.get": RestOperation(returns=bodies.Assistant),
        "assistant.graph": RestOperation(returns=bodies.Graph, query={"xray": "string"}),
        "assistant.schemas": RestOperation(returns=bodies.GraphSchemas),
        "assistant.subgraphs": RestOperation(returns=JsonObject, query={"recurse": "boolean"}),
        "assistant.versions": RestOperation(
            body=assistants.Page, is_body_optional=True, returns=list[bodies.Assistant]
        ),
        "assistant.create": RestOperation(body=assistants.AssistantCreate, returns=bodies.Assistant),
        "assistant.change": RestOperation(body=assistants.AssistantPatch, returns=bodies.Assistant),
        "assistant.delete": RestOperation(other={204: None}, query={"delete_threads": "boolean"}),
        "assistant.use_version": RestOperation(body=assistants.Latest, returns=bodies.Assistant),
        "cron.create": RestOperation(body=crons.CronCreate, returns=bodies.Cron),
        "cron.search": RestOperation(body=crons.CronSearch, is_body_optional=True, returns=list[bodies.Cron]),
        "cron.count": RestOperation(body=crons.CronCount, is_body_optional=True, returns=int),
        "cron.get": RestOperation(returns=bodies.Cron),
        "cron.change": RestOperation(body=crons.CronPatch, returns=bodies.Cron),
        "cron.delete": RestOperation(other={204: None}),
        "store.put": RestOperation(body=store.Put, other={204: None}),
        "store.get": RestOperation(
            returns=bodies.Item | None,
            query={"namespace": "string", "key": "string", "refresh_ttl": "boolean"},
        ),
        "store.delete": RestOperation(body=store.Delete, other={204: None}),
        "store.search": RestOperation(body=store.Search, is_body_optional=True, returns=bodies.Items),
        "store.namespaces": RestOperation(
            body=store.Namespaces, is_body_optional=True, returns=bodies.Namespaces | list[list[str]]
        ),
        "store.get_at": RestOperation(returns=bodies.Item),
        "store.put_at": RestOperation(body=store.Value, returns=bodies.Item),
        "store.delete_at": RestOperation(other={204: None}),
    },
)
