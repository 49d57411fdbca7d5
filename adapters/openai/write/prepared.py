"""Prewarmed inputs (`response.create` with `generate: false`), which a caller sends ahead of the request that uses
them, as the events of an empty response."""

from babelgate.adapters.openai.codec.model import encode_response_usage
from babelgate.adapters.openai.wire import replies as w
from babelgate.adapters.openai.wire.responses import ResponseCreate
from babelgate.adapters.openai.write.settings import encode_settings
from babelgate.canonical.value import JsonObject


def encode_prepared(
    response_id: str, body: ResponseCreate, model: str, previous_id: str | None, at: int
) -> list[JsonObject]:
    """Return the events of an empty response for a prewarmed input. `previous_id` is the response that it continues, or
    None. `at`: time in seconds since 1970.

    The response is shown as not stored, because only its own connection can continue it.
    """
    response = w.response(
        response_id,
        created_at=at,
        completed_at=None,
        status="in_progress",
        model=model,
        output=[],
        usage=None,
        settings=encode_settings(body.config()),
        previous_response_id=previous_id,
        store=False,
        background=False,
        metadata=dict(body.metadata or {}),
    )
    usage = encode_response_usage({})
    done: JsonObject = {**response, "status": "completed", "completed_at": at, "usage": usage}
    events = {"created": response, "in_progress": response, "completed": done}
    return [
        {"type": f"response.{kind}", "sequence_number": number, "response": members}
        for number, (kind, members) in enumerate(events.items())
    ]
