"""The one exception that a command ends with on purpose; `main` turns it into one line and an exit code."""

from gpulease_cli.exit_codes import ExitCode


class CliError(Exception):
    """What is wrong, where (`field`: an option, a key of the file, or a thing like `lease`), and the exit code."""

    def __init__(self, message: str, *, field: str = "", code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.field = field
        self.code = code

    def line(self) -> str:
        """The message as it is printed, in one line."""
        text = f"{self.field}: {self}" if self.field else str(self)
        return " ".join(text.split())
