"""Routes and schemas of the HTTP API."""
