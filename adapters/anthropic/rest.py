"""REST operations of the Messages API: the types of their bodies."""

from typing import Final

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.kit.server.rest import RestDescription, RestOperation

REST: Final = RestDescription(
    official=w.SPEC,
    error=w.ErrorBody,
    operations={
        "create_message.create": RestOperation(body=w.MessageCreate, returns=w.MessageBody, streams=w.StreamEvent),
        "model_list.count_tokens": RestOperation(body=w.MessageCreate, returns=w.ErrorBody),
        "model_list.list_models": RestOperation(returns=w.Models),
        "model_list.get_model": RestOperation(returns=w.Model),
        "stored_messages.get_message": RestOperation(
            returns=w.MessageBody, streams=w.StreamEvent, query={"stream": "boolean"}
        ),
        "stored_messages.cancel_message": RestOperation(returns=w.MessageBody),
        "stored_messages.get_file": RestOperation(returns=bytes, media_type="application/octet-stream"),
    },
)
