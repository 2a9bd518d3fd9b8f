"""The command line: it talks to the HTTP API, and to nothing behind it.

`gpulease_cli.client.Client` is the API for Python programs.
"""

__version__ = "0.1.0"
