"""The gateway as an ASGI application: routes, middleware, credentials, TLS, and limits of connections."""
