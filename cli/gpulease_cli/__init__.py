"""The command line: it talks to the HTTP API, and to nothing behind it."""
