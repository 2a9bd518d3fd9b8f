"""The API's complaints as one line and an exit code."""

from collections.abc import Callable

from gpulease_cli.client import ApiProblem
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode

_CODES = {400: ExitCode.USAGE, 404: ExitCode.NOT_FOUND, 413: ExitCode.USAGE, 422: ExitCode.USAGE}


def problem_line(problem: ApiProblem, call: Callable[[str], str] = str) -> str:
    """The first wrong field, else the detail. `call` turns the API's name of a field into what the user typed."""
    if problem.code == "no_matching_offer" and problem.errors:
        # Each of these is one way out, and which of them is meant only the user knows.
        ways = [f"{call(error.field)}: {error.message}" for error in problem.errors]
        return f"no offer matches; {'; or '.join(ways)}"
    if problem.errors:
        first, more = problem.errors[0], len(problem.errors) - 1
        text = first.message + (f" (and {more} more)" if more else "")
        return f"{call(first.field)}: {text}" if first.field else text
    if problem.status == 401:
        return f"token: {problem}; give the right one with --token or GPULEASE_TOKEN"
    if problem.status == 403 and not problem.code:
        # Not our API's answer but its gateway's, which says little.
        if "expired" in problem.detail.lower():
            return "the AWS credentials have expired; log in again (`aws sso login`)"
        return (
            f"the API did not let you in (403: {problem.detail or problem.title}); your AWS identity needs "
            "execute-api:Invoke on it, and must be of its account; see docs/deploy.md"
        )
    return f"{problem.title}: {problem.detail}" if problem.title and problem.detail else str(problem)


def problem_code(problem: ApiProblem) -> ExitCode:
    """The exit code that goes with an answer of the API."""
    if problem.code == "no_matching_offer":
        return ExitCode.NOT_AS_ASKED
    return ExitCode.INTERNAL if problem.status >= 500 else _CODES.get(problem.status, ExitCode.REFUSED)


def as_cli_error(problem: ApiProblem, call: Callable[[str], str]) -> CliError:
    """The same, with the fields called by their options."""
    return CliError(problem_line(problem, call), code=problem_code(problem))
