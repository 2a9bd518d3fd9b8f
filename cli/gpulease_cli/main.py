"""Entry of `gpulease`: finds the command, and turns whatever ends it into one line on stderr and an exit code.

Invariants: never a traceback (unless GPULEASE_DEBUG=1), and a command's module is imported only when it is called.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from gpulease_cli.app import App
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode

_COMMANDS = {
    "offers": "Show what can be rented, the cheapest first.",
    "up": "Rent a machine and wait until it runs.",
    "ls": "List leases and what they cost.",
    "show": "Show everything about one lease.",
    "events": "Show what happened to a lease.",
    "ssh": "Open a shell on a machine.",
    "config": "Tell other programs of your machines.",
    "policy": "Show or change what happens to a lease by itself.",
    "touch": "Say that a machine is in use.",
    "keep": "Keep a machine for a while, used or not.",
    "pause": "Stop the bill of a machine and keep what can be kept.",
    "resume": "Let a paused machine run again.",
    "down": "Give machines back and wait until they are gone.",
    "cache": "Keep models, packages and images between machines.",
    "doctor": "Compare what is held with what the providers show.",
    "drain": "Give everything back, before the stack is deleted.",
    "sweep": "Give back now what is in nobody's hands.",
    "configure": "Use a deployed stack from now on.",
    "secrets": "Keep the keys of provider accounts.",
    "local": "Run gpulease on this computer, without AWS.",
    "simulate": "Run many whole lifecycles in virtual time.",
    "simulator": "Run a simulated provider.",
    "version": "Show the version.",
    "completion": "Print the completion script of a shell.",
}
COMPLETE_VARIABLE = "_GPULEASE_COMPLETE"


class LazyGroup(click.Group):
    """Knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(f"gpulease_cli.commands.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from gpulease_cli.text import closest

            near = closest(args[0], _COMMANDS)
            right = f"did you mean {near}?" if near else f"known: {', '.join(_COMMANDS)}"
            raise CliError(f"there is no command {args[0]!r}; {right}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table above: the help of the whole must not import all of its parts.
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 no machine as asked, 2 wrong input, 3 API unreachable, 4 not found, 5 refused, "
    "6 timed out, 7 fault, 130 interrupted.",
)
@click.option("--endpoint", metavar="URL", help="Address of the API [GPULEASE_ENDPOINT].")
@click.option("--token", metavar="TOKEN", help="Token of the API [GPULEASE_TOKEN].")
@click.option("--version", "show_version", is_flag=True, help="Show the version.")
@click.pass_context
def cli(ctx: click.Context, endpoint: str | None, token: str | None, show_version: bool) -> None:
    """Rent GPU machines, and never pay for one you forgot.

    \b
    gpulease local                          # first: start it on this computer
    gpulease offers --gpu A100              # what is there, at which price
    gpulease up --gpu A100 --name train     # rent one and wait until it runs
    gpulease ls                             # what you have, and what it costs
    gpulease down train                     # give it back
    """
    app = ctx.find_object(App) or App()
    app.endpoint_option, app.token_option = endpoint, token
    ctx.obj = app
    if show_version:
        from gpulease_cli import __version__

        click.echo(f"gpulease {__version__}")
        ctx.exit(0)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None, app: App | None = None) -> int:
    """Run one command line; gives its exit code. `app` is for tests."""
    app = app or App()
    stdout = sys.stdout
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name with a character that the terminal cannot show must not end the command.
            stream.reconfigure(errors="replace")
    try:
        result = cli.main(
            args=None if argv is None else list(argv),
            prog_name="gpulease",
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
            obj=app,
        )
        sys.stdout.flush()
        return int(result) if isinstance(result, int) else ExitCode.OK
    except SystemExit as end:
        # When the reader (`| head`) has seen enough, click puts something in place of stdout and ends the process.
        if sys.stdout is not stdout:
            return ExitCode.OK
        return end.code if isinstance(end.code, int) else ExitCode.USAGE
    except (KeyboardInterrupt, click.Abort):
        return _end("interrupted", ExitCode.INTERRUPTED)
    except CliError as error:
        return _end(f"error: {error.line()}", error.code)
    except click.ClickException as error:
        return _end(f"error: {_usage_line(error)}", ExitCode.USAGE)
    except Exception as error:
        return _unexpected(app, error)


def _end(text: str, code: ExitCode) -> ExitCode:
    sys.stderr.write(f"gpulease: {' '.join(text.split())}\n")
    return code


def _usage_line(error: click.ClickException) -> str:
    """click's own complaints in our form: `<option>: <what is wrong>; <what would be right>`."""
    ctx: Any = getattr(error, "ctx", None)
    helped = f"see `{ctx.command_path} --help`" if ctx is not None else "see `gpulease --help`"
    if isinstance(error, click.NoSuchOption):
        near = sorted(error.possibilities or [])
        return f"{error.option_name}: no such option; {f'did you mean {near[0]}?' if near else helped}"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        option = isinstance(error.param, click.Option)
        name = _given_name(error.param) if option else error.param.make_metavar(ctx or click.Context(cli))
        return f"{name}: is missing; {helped}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        message = error.message.rstrip(".")
        return f"{_given_name(error.param)}: {message}" + ("" if ";" in message else f"; {helped}")
    if isinstance(error, click.BadOptionUsage) and error.option_name:
        return f"{error.option_name}: needs a value, or takes none; {helped}"
    message = error.format_message().rstrip(".")
    return message if ";" in message else f"{message}; {helped}"


def _given_name(param: click.Parameter) -> str:
    return max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name


def _unexpected(app: App, error: Exception) -> ExitCode:
    """Errors of the API, and then faults of our own."""
    debug = bool(app.env.get("GPULEASE_DEBUG"))
    # Not at the top: a command that never called the API must not pay for importing its client.
    client = sys.modules.get("gpulease_cli.client")
    if client is not None and isinstance(error, client.ApiProblem):
        from gpulease_cli.problems import problem_code, problem_line

        return _end(f"error: {problem_line(error)}", problem_code(error))
    if client is not None and isinstance(error, client.ApiUnreachable):
        return _end(f"error: {_unreachable(app, error)}", ExitCode.UNREACHABLE)
    if debug:
        import traceback

        traceback.print_exc()
    hint = "" if debug else "; GPULEASE_DEBUG=1 shows where"
    return _end(f"error: unexpected {type(error).__name__}: {error}{hint}", ExitCode.INTERNAL)


def _unreachable(app: App, error: Exception) -> str:
    endpoint = app.endpoint()
    start = "start it with `gpulease local`" if endpoint.is_local else "is the address right?"
    return f"endpoint: {endpoint.url} (from {endpoint.source}) gave no answer: {error}; {start}"
