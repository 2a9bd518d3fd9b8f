"""`gpulease local`: the whole thing on this computer. Thin: `gpulease_local.server` is what runs."""

from pathlib import Path

import click

from gpulease_cli.app import App
from gpulease_cli.endpoint import home
from gpulease_cli.errors import CliError
from gpulease_cli.options import PORT, SPEED, existing_file, http_url, usable_folder


@click.command("local")
@click.option("--provider", type=click.Choice(["simulated", "vultr"]), default="simulated", show_default=True)
@click.option("--port", type=PORT, default=8765, show_default=True, help="On 127.0.0.1; 0 = any free one.")
@click.option("--data-dir", metavar="FOLDER", help="Ledger, executions and token. Default: $GPULEASE_HOME/local.")
@click.option("--time-scale", type=SPEED, metavar="X", help="So many times faster (simulated clouds only).")
@click.option("--vultr-url", metavar="URL", help="Another address of Vultr's API (--provider vultr only).")
@click.option("--seed", type=int, metavar="N", help="What the simulated cloud draws its luck from. Default: 0.")
@click.option("--agent-url", metavar="URL", help="Where machines reach this server; with it they get the agent.")
@click.option("--template", metavar="FILE", help="Another template.yaml than the one of this version.")
@click.pass_obj
def command(
    app: App,
    provider: str,
    port: int,
    data_dir: str | None,
    time_scale: float | None,
    vultr_url: str | None,
    seed: int | None,
    agent_url: str | None,
    template: str | None,
) -> int:
    """Run gpulease on this computer, without AWS: the API, the workflows and the ledger. Ctrl+C ends it.

    The simulated cloud costs nothing. With --provider vultr real machines are rented: VULTR_API_KEY holds the key.
    Leases go on where they were when it is started again.

    \b
    gpulease local
    gpulease local --time-scale 60
    VULTR_API_KEY=... gpulease local --provider vultr
    """
    if provider != "simulated":
        for option, value in (("--time-scale", time_scale), ("--seed", seed)):
            if value is not None:
                raise CliError(f"contradicts --provider {provider}; it is for the simulated cloud", field=option)
    elif vultr_url is not None:
        raise CliError("contradicts --provider simulated; add --provider vultr", field="--vultr-url")
    folder = usable_folder(Path(data_dir).expanduser() if data_dir else home(app.env) / "local", "--data-dir")
    chosen_template = existing_file(template, "--template") if template else None
    chosen_url = http_url(vultr_url, "--vultr-url") if vultr_url else None

    from gpulease_local import server

    result = server.main(
        provider=provider,
        port=port,
        data_dir=folder,
        time_scale=1.0 if time_scale is None else time_scale,
        vultr_url=chosen_url,
        seed=seed or 0,
        template=chosen_template,
        agent_url=http_url(agent_url, "--agent-url") if agent_url else None,
    )
    return int(result or 0)
