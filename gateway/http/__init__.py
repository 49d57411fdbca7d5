"""The gateway as an ASGI application: routes, middleware, and limits of connections."""
