"""What the gateway is measured against: Litestar answering a POST with the body it got, and nothing else."""

from typing import Any

from litestar import Litestar, Request, Response, post


@post("/", status_code=200)
async def echo(request: Request[Any, Any, Any]) -> Response[bytes]:
    return Response(await request.body(), media_type="application/json")


app = Litestar([echo], openapi_config=None, logging_config=None)
