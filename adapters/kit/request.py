"""Type of the requests that handlers take."""

from typing import Any

from litestar import Request

AnyRequest = Request[Any, Any, Any]
"""Request with any user, authentication and state. Litestar's parameters for them are not used."""
