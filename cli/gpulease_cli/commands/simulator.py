"""`gpulease simulator`: thin; `gpulease_sim` is what runs."""

import click

from gpulease_cli.options import PORT, SPEED


@click.command("simulator")
@click.argument("provider", type=click.Choice(["vultr", "aws"]), default="vultr")
@click.option("--port", type=PORT, default=8790, show_default=True, help="On 127.0.0.1; 0 = any free one.")
@click.option("--time-scale", type=SPEED, default=1.0, show_default=True, metavar="X", help="So many times faster.")
@click.option("--seed", type=int, default=0, show_default=True, help="What it draws its luck from.")
@click.option("--state", metavar="FILE", help="Keep the account in this file; else it ends with the process.")
def command(provider: str, port: int, time_scale: float, seed: int, state: str | None) -> int:
    """Run a simulated provider, with the real one's routes, states, times and faults. Ctrl+C ends it.

    \b
    gpulease simulator vultr --port 8790 --time-scale 60
    """
    arguments = ["--port", str(port), "--time-scale", str(time_scale), "--seed", str(seed)]
    if provider == "aws":
        if state:
            raise click.UsageError("--state is for vultr only: a simulated AWS account ends with its process.")
        from gpulease_sim.aws import __main__ as aws

        return int(aws.main(arguments) or 0)
    from gpulease_sim.vultr import __main__ as vultr

    return int(vultr.main([*arguments, *(["--state", state] if state else [])]) or 0)
