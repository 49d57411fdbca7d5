"""The gateway as an ASGI application: routes, middleware, limits of connections, and outbound requests (SSRF guard)."""
