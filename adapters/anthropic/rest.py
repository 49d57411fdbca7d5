"""REST operations of the Messages API: the types of their bodies."""

from typing import Final

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.kit.server.rest import RestDescription, RestOperation

REST: Final = RestDescription(
    official=w.SPEC,
    error=w.ErrorBody,
    operations={
        "create_message.create": RestOperation(body=w.MessageCreate, returns=w.MessageBody, streams=w.StreamEvent),
        "models.count_tokens": RestOperation(body=w.MessageCreate, returns=w.ErrorBody),
        "models.list_models": RestOperation(returns=w.Models),
        "models.get_model": RestOperation(returns=w.Model),
        "stored.get_message": RestOperation(returns=w.MessageBody, streams=w.StreamEvent, query={"stream": "boolean"}),
        "stored.cancel_message": RestOperation(returns=w.MessageBody),
        "stored.get_file": RestOperation(returns=bytes, media_type="application/octet-stream"),
    },
)
