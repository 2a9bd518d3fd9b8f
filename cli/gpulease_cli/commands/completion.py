"""`gpulease completion`: the script that teaches a shell to complete."""

import click
from click.shell_completion import get_completion_class

from gpulease_cli.app import App


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    eval "$(gpulease completion bash)"                                  # in ~/.bashrc
    eval "$(gpulease completion zsh)"                                   # in ~/.zshrc
    gpulease completion fish > ~/.config/fish/completions/gpulease.fish
    """
    from gpulease_cli.main import COMPLETE_VARIABLE, cli

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the choices above are click's own
    app = ctx.find_object(App) or App()
    app.say(kind(cli, {}, "gpulease", COMPLETE_VARIABLE).source())
