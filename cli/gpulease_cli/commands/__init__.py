"""One module per command; each holds `command`. `main` imports one when it is called."""
