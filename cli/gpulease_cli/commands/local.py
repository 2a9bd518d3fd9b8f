"""`gpulease local`: the whole thing on this computer. Thin: `gpulease_local.server` is what runs."""

from pathlib import Path

import click

from gpulease_cli.app import App
from gpulease_cli.endpoint import home
from gpulease_cli.errors import CliError
from gpulease_cli.options import PORT, SPEED, existing_file, http_url, usable_folder

SIMULATED = ("simulated", "simulated-aws")
KNOWN = (*SIMULATED, "vultr", "aws")


@click.command("local")
@click.option(
    "--provider",
    metavar="NAME[,NAME]",
    default="simulated",
    show_default=True,
    help="vultr, aws (real machines); simulated, simulated-aws. Several: in order of preference.",
)
@click.option("--port", type=PORT, default=8765, show_default=True, help="On 127.0.0.1; 0 = any free one.")
@click.option("--data-dir", metavar="FOLDER", help="Ledger, executions and token. Default: $GPULEASE_HOME/local.")
@click.option("--time-scale", type=SPEED, metavar="X", help="So many times faster (simulated clouds only).")
@click.option("--vultr-url", metavar="URL", help="Another address of Vultr's API (--provider vultr only).")
@click.option("--aws-regions", metavar="LIST", help="Where to rent at AWS. Default: the region of your profile.")
@click.option("--aws-profile", metavar="NAME", help="Of your AWS configuration. Default: as for every AWS tool.")
@click.option("--aws-subnets", metavar="ZONE=SUBNET,…", help="Default: the default subnets.")
@click.option("--aws-security-group", metavar="ID", help="Default: one that lets SSH in, made when it is needed.")
@click.option("--aws-image", metavar="AMI", help="ami-… or ssm:/path. Default: AWS' Deep Learning base image.")
@click.option("--aws-url", metavar="URL", help="Of `gpulease simulator aws` (--provider aws only).")
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
    aws_regions: str | None,
    aws_profile: str | None,
    aws_subnets: str | None,
    aws_security_group: str | None,
    aws_image: str | None,
    aws_url: str | None,
    seed: int | None,
    agent_url: str | None,
    template: str | None,
) -> int:
    """Run gpulease on this computer, without an AWS account: the API, the workflows and the ledger. Ctrl+C ends it.

    Simulated clouds cost nothing. With --provider vultr or aws real machines are rented: VULTR_API_KEY holds the key,
    and at AWS your own credentials are used. Leases go on where they were when it is started again; those of
    simulated-aws are then found lost, as its account ends with the process. GPULEASE_AWS_REGIONS, _PROFILE, _SUBNETS,
    _SECURITY_GROUP, _IMAGE and _URL say the same as the options.

    \b
    gpulease local
    gpulease local --provider simulated,simulated-aws --time-scale 60
    VULTR_API_KEY=... gpulease local --provider vultr
    gpulease local --provider aws,vultr --aws-regions us-east-1,us-west-2 --aws-profile research
    """
    providers = _providers(provider)
    simulated = providers[0] in SIMULATED
    for option, value in (("--time-scale", time_scale), ("--seed", seed)):
        if value is not None and not simulated:
            raise CliError(f"contradicts --provider {provider}; it is for simulated clouds", field=option)
    if vultr_url is not None and "vultr" not in providers:
        raise CliError(f"contradicts --provider {provider}; add --provider vultr", field="--vultr-url")
    of_aws = {
        "--aws-regions": aws_regions,
        "--aws-profile": aws_profile,
        "--aws-subnets": aws_subnets,
        "--aws-security-group": aws_security_group,
        "--aws-image": aws_image,
        "--aws-url": aws_url,
    }
    for option, given in of_aws.items():
        fits = ("aws", "simulated-aws") if option == "--aws-regions" else ("aws",)
        if given is not None and not set(fits) & set(providers):
            raise CliError(f"contradicts --provider {provider}; add --provider aws", field=option)
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
        aws=server.AwsSetup(
            regions=aws_regions or "",
            profile=aws_profile or "",
            subnets=aws_subnets or "",
            security_group=aws_security_group or "",
            image=aws_image or "",
            url=http_url(aws_url, "--aws-url") if aws_url else "",
        ),
        env=app.env,
    )
    return int(result or 0)


def _providers(text: str) -> list[str]:
    """The named ones. Raises CliError for what cannot be together."""
    names = [each.strip() for each in text.split(",") if each.strip()]
    for name in names or [text]:
        if name not in KNOWN:
            raise CliError(f"{name!r} is not one of {', '.join(KNOWN)}", field="--provider")
    if len({name in SIMULATED for name in names}) > 1:
        raise CliError("real and simulated providers cannot be mixed", field="--provider")
    if len(set(names)) < len(names):
        raise CliError("names one twice", field="--provider")
    return names
