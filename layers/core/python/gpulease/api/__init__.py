"""Routes and schemas of the HTTP API. `create_app(deps)` in `app.py` puts them together."""
