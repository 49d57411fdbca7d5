"""REST operations of OpenAI's APIs: the types of their bodies."""

from typing import Final

from babelgate.adapters.kit.server.rest import JsonType, RestDescription, RestOperation
from babelgate.adapters.openai.wire import bodies, replies, requests, responses

_PAGE: Final[dict[str, JsonType]] = {"after": "string", "limit": "integer", "order": "string"}

REST: Final = RestDescription(
    official="https://github.com/openai/openai-openapi",
    error=bodies.ErrorBody,
    operations={
        "models.list_models": RestOperation(returns=replies.Models),
        "models.get_model": RestOperation(returns=replies.Model),
        "models.get_file": RestOperation(returns=bytes, media_type="application/octet-stream"),
        "chat_completions.create": RestOperation(
            body=requests.ChatCreate, returns=bodies.Completion, streams=bodies.Chunk
        ),
        "stored_completions.list_completions": RestOperation(
            returns=bodies.CompletionPage, query={**_PAGE, "model": "string"}
        ),
        "stored_completions.get_completion": RestOperation(returns=bodies.Completion),
        "stored_completions.change_completion": RestOperation(body=responses.MetadataUpdate, returns=bodies.Completion),
        "stored_completions.delete_completion": RestOperation(returns=replies.Deleted),
        "stored_completions.list_messages": RestOperation(returns=bodies.ObjectPage, query=_PAGE),
        "create_response.create": RestOperation(
            body=responses.ResponseCreate, returns=bodies.Response, streams=bodies.ResponseEvent
        ),
        "compact.compact": RestOperation(body=responses.ResponseCompact, returns=bodies.Compacted),
        "responses.get_response": RestOperation(
            returns=bodies.Response,
            streams=bodies.ResponseEvent,
            query={"stream": "boolean", "starting_after": "integer"},
        ),
        "responses.delete_response": RestOperation(returns=bodies.DeletedObject),
        "responses.cancel_response": RestOperation(returns=bodies.Response),
        "responses.list_input_items": RestOperation(returns=bodies.ObjectPage, query=_PAGE),
        "conversations.create_conversation": RestOperation(
            body=responses.ConversationCreate, is_body_optional=True, returns=bodies.Conversation
        ),
        "conversations.get_conversation": RestOperation(returns=bodies.Conversation),
        "conversations.change_conversation": RestOperation(body=responses.MetadataUpdate, returns=bodies.Conversation),
        "conversations.delete_conversation": RestOperation(returns=bodies.DeletedObject),
        "conversations.list_items": RestOperation(returns=bodies.ObjectPage, query=_PAGE),
        "conversations.add_items": RestOperation(body=responses.ItemsCreate, returns=bodies.ObjectPage),
        "conversations.get_item": RestOperation(returns=bodies.ConversationItem),
        "conversations.delete_item": RestOperation(returns=bodies.Conversation),
    },
)
