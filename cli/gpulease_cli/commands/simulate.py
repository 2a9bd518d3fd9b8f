"""`gpulease simulate`: thin; `gpulease_local.simulate` is what runs."""

import click

from gpulease_cli.errors import CliError
from gpulease_cli.options import AmountType, CountType, json_option


@click.command("simulate")
@click.option("--leases", type=CountType(1, 1_000_000), default=300, show_default=True, help="Whole lifecycles.")
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed gives the same run.")
@click.option("--faults", type=click.Choice(["none", "default", "all"]), default="default", show_default=True)
@click.option(
    "--provider",
    type=click.Choice(["vultr", "aws", "mixed"]),
    help="Whose machines are wanted; mixed: both. Default: vultr; both for --crash-points and idle-week.",
)
@click.option("--agents", is_flag=True, help="Machines have agents that report, in use all along (slower).")
@click.option("--crash-points", is_flag=True, help="Cut each workflow off at each of its effects, in each way.")
@click.option(
    "--pairs", type=CountType(1, 1_000_000), metavar="N", help="After the crash points, N drawn pairs of them."
)
@click.option(
    "--replay", metavar="CASE", help="Tell the story of one run: a seed, seed=4,only=37,limit=5, or a report."
)
@click.option(
    "--scenario",
    type=click.Choice(["lives", "idle-week"]),
    default="lives",
    show_default=True,
    help="idle-week: machines used as people use them; is idleness handled right?",
)
@click.option("--machines", type=CountType(1, 10_000), default=200, show_default=True, help="Of idle-week.")
@click.option("--days", type=AmountType("days", most=366), default=7.0, show_default=True, help="Of idle-week.")
@json_option
def command(
    leases: int,
    seed: int,
    faults: str,
    provider: str | None,
    agents: bool,
    crash_points: bool,
    pairs: int | None,
    replay: str | None,
    scenario: str,
    machines: int,
    days: float,
    as_json: bool,
) -> int:
    """Run many whole lifecycles in virtual time against a simulated cloud, with faults, and compare the books.

    \b
    gpulease simulate --leases 1000 --seed 11
    gpulease simulate --leases 2000 --seed 11 --faults all --json
    gpulease simulate --leases 1000 --provider aws --faults all --json
    gpulease simulate --leases 200 --provider mixed --faults all --agents
    gpulease simulate --crash-points --pairs 500
    gpulease simulate --scenario idle-week --machines 200 --seed 3 --json
    gpulease simulate --replay seed=4,leases=60,faults=all,only=37,limit=5
    """
    from gpulease_local import simulate

    if agents and (scenario == "idle-week" or crash_points or pairs is not None):
        raise CliError(
            "is of --scenario lives; idle-week has agents always, crash points where they matter", field="--agents"
        )
    if scenario == "idle-week":
        if crash_points or pairs is not None or replay is not None:
            raise CliError("contradicts --crash-points, --pairs and --replay", field="--scenario")
        where = provider or "mixed"
        return int(simulate.idle(machines=machines, seed=seed, days=days, json_output=as_json, provider=where) or 0)
    if replay is not None and (crash_points or pairs is not None):
        raise CliError("contradicts --crash-points and --pairs", field="--replay")
    if crash_points or pairs is not None:
        return int(
            simulate.crash_points(seed=seed, pairs=pairs or 0, json_output=as_json, provider=provider or "mixed") or 0
        )
    if replay is not None:
        try:
            where = provider or "vultr"
            return int(simulate.replay(replay, leases=leases, faults=faults, provider=where, agents=agents) or 0)
        except ValueError as error:
            raise CliError(str(error), field="--replay") from None
    return int(
        simulate.main(
            leases=leases, seed=seed, faults=faults, json_output=as_json, provider=provider or "vultr", agents=agents
        )
        or 0
    )
