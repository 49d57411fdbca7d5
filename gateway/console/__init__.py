"""Web console: a page of static files, and the JSON API that it reads from."""
