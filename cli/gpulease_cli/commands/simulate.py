"""`gpulease simulate`: thin; `gpulease_local.simulate` is what runs."""

import click

from gpulease_cli.options import CountType, json_option


@click.command("simulate")
@click.option("--leases", type=CountType(1, 1_000_000), default=300, show_default=True, help="Whole lifecycles.")
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed gives the same run.")
@click.option("--faults", type=click.Choice(["none", "default", "all"]), default="default", show_default=True)
@json_option
def command(leases: int, seed: int, faults: str, as_json: bool) -> int:
    """Run many whole lifecycles in virtual time against a simulated cloud, with faults, and compare the books.

    \b
    gpulease simulate --leases 1000 --seed 11
    gpulease simulate --faults none --json
    """
    from gpulease_local import simulate

    return int(simulate.main(leases=leases, seed=seed, faults=faults, json_output=as_json) or 0)
