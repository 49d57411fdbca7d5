"""Page to which an identity provider redirects the browser after a user has given or refused consent (RFC 6749,
4.1.2)."""

from html import escape
from typing import Any, Final

from litestar import Request, Response, get

from babelgate.adapters.kit.server.caller import caller
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.runs.consents import CALLBACK

_MAX_QUERY: Final = 16 * 2**10
"""Maximum length of the query, in bytes. Chosen: codes have at most 4 KiB, and providers add a few members."""
_STATUS: Final = {
    FaultCode.NOT_FOUND: 404,
    FaultCode.FORBIDDEN: 403,
    FaultCode.EXPIRED: 410,
    FaultCode.UNAVAILABLE: 503,
    FaultCode.SHUTTING_DOWN: 503,
}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Babelgate</title>
<p>{}</p>
"""


def callback_route(hub: GatewayHub) -> Any:
    """Return the handler of the page to which the identity provider redirects the browser."""

    @get(CALLBACK)
    async def callback(request: Request[Any, Any, Any]) -> Response[str]:
        """Keep the tokens to which the user has agreed, and let the run continue."""
        if len(request.scope["query_string"]) > _MAX_QUERY:
            return _page("The URL is too long.", 400)
        try:
            text = await hub.consents.handle_callback(caller(request).principal, dict(request.query_params))
        except FaultError as error:
            return _page(error.fault.message, _STATUS.get(error.fault.code, 400))
        return _page(text, 200)

    return callback


def _page(text: str, status: int) -> Response[str]:
    return Response(_PAGE.format(escape(text)), status_code=status, media_type="text/html", headers=_HEADERS)
