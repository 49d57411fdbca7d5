"""The types of OpenAI's API: what other servers answer, what callers ask for, and what they are answered."""

from typing import Final

__all__ = ("SPEC",)

SPEC: Final = "https://github.com/openai/openai-python/blob/v3.54.0/src/openai/types"
"""The types of both APIs, made from OpenAI's own OpenAPI document. Comments name the file below it: "SPEC/chat/…"."""
