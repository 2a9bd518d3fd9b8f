"""A regular package on purpose: the gpuhunt wheel installs a top-level `tests` of its own.

A regular package later on the path would win over a folder without `__init__.py`, and `tests.support` would
be gone. Only this folder needs the file; the ones below it do without.
"""
