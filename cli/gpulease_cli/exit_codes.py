"""Exit codes of the command line. They are an interface: scripts branch on them, so none changes its meaning."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script may conclude from the end of a command. The table in docs/cli.md says the same."""

    OK = 0
    NOT_AS_ASKED = 1
    """The lease ended without running, or no offer matches: everything worked, but there is no machine."""
    USAGE = 2
    """Bad options, file or value; nothing was done."""
    UNREACHABLE = 3
    """The API did not answer."""
    NOT_FOUND = 4
    REFUSED = 5
    """The API answered no: not allowed, or in conflict with what is."""
    TIMED_OUT = 6
    """The waiting ended, what was waited for goes on."""
    INTERNAL = 7
    """A fault of the API or of the command line itself."""
    INTERRUPTED = 130
