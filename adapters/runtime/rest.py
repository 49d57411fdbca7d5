"""REST operations of the minimal runtime: the types of their bodies."""

from typing import Final

from babelgate.adapters.kit.server.rest import RestDescription, RestOperation
from babelgate.adapters.runtime import wire as w

REST: Final = RestDescription(
    error=w.Error,
    operations={
        "create_thread": RestOperation(body=w.ThreadCreate, is_body_optional=True, returns=w.Thread),
        "get_thread": RestOperation(returns=w.Thread),
        "change_thread": RestOperation(body=w.ThreadChange, returns=w.Thread),
        "create_run": RestOperation(body=w.RunCreate, returns=w.Run, other={202: w.Run}),
        "stream_run": RestOperation(body=w.RunCreate, streams=w.Event, is_stream_only=True),
        "resume": RestOperation(body=w.Resume, returns=w.Run, streams=w.Event, other={202: w.Run}),
        "get_run": RestOperation(returns=w.Run),
        "follow_run": RestOperation(streams=w.Event, is_stream_only=True, headers={"Last-Event-ID": "integer"}),
        "cancel_run": RestOperation(returns=w.Run),
    },
)
