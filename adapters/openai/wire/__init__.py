"""Types of OpenAI's APIs: responses of other servers, requests of callers, and responses to callers."""

from typing import Final

__all__ = ("QUOTA", "SPEC")

SPEC: Final = "https://github.com/openai/openai-python/blob/v3.54.0/src/openai/types"
"""URL of the types of both APIs, which are generated from OpenAI's own OpenAPI document. Comments name a file below it:
"SPEC/chat/…"."""

QUOTA: Final = "insufficient_quota"
"""`type` and `code` of the error for a used up budget, which has status 429, too
(platform.openai.com/docs/guides/error-codes)."""
