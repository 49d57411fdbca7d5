"""Push notification configs: where a caller wants a task's updates posted, and in which version's words."""

from typing import Any
from uuid import uuid4

from adapters._request import run_headers
from adapters.a2a.ask import Push, PushListing
from adapters.a2a.dialect import Dialect
from adapters.a2a.fault import refusal
from canonical import FaultCode, FaultError, Webhook
from canonical.value import JsonObject

from .call import Answer, Call
from .find import find_task

__all__ = ("create", "delete", "get", "list_configs", "make_webhook")

