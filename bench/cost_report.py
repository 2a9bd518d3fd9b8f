"""Says what the control plane costs: as tables for people, as JSON for programs, and whether it is what was wanted."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from bench.metered_stack import Assumed
from bench.prices import AS_OF, HOURS_PER_MONTH, PRICES, REGION, SERVERS, SKYPILOT_SOURCE, bill, total

AIMS = {"vm": Decimal("0.002"), "bare_metal": Decimal("0.005"), "idle": Decimal("0.50"), "watched": Decimal("0.15")}
FIXED = ("alarms", "dashboards", "secrets")
LEASES = {
    "vm": "one VM lease of one hour",
    "vm_with_network": "one VM lease of one hour with a private network of its own",
    "bare_metal": "one bare metal lease: 42 min boot, one hour",
}
WATCHED = {
    "watched_in_use": "a month of one machine with an agent, in use",
    "watched_in_turns": "a month of one machine with an agent, 19 min of use and 29 min without, in turns",
}


@dataclass(frozen=True)
class Measured:
    """Uses by name, all calls traced, and the detail of the leases among them."""

    uses: Mapping[str, Mapping[str, float]]
    details: Mapping[str, Mapping[str, float]]
    formulas: Mapping[str, str]
    """Of uses that are calculated from what was measured."""
    traced: bool
    """Whether the template traces unless told otherwise."""

    def usual(self) -> dict[str, Mapping[str, float]]:
        """The uses of a stack whose parameters were left as they are."""
        return {name: use if self.traced else without(use, ("traces",)) for name, use in self.uses.items()}


def without(use: Mapping[str, float], names: tuple[str, ...]) -> dict[str, float]:
    """The use less some quantities."""
    return {name: amount for name, amount in use.items() if name not in names}


def document(measured: Measured, assumed: Assumed) -> dict[str, Any]:
    """All figures, for `--json`."""
    found: dict[str, Any] = {"prices_as_of": AS_OF.isoformat(), "region": REGION, "assumed": asdict(assumed)}
    for name, use in measured.usual().items():
        found[name] = {
            "usd": str(round(total(use), 6)),
            "usd_with_traces": str(round(total(measured.uses[name]), 6)),
            "items": {
                item: {"amount": round(use[item], 6), "usd": str(round(usd, 7))} for item, usd in bill(use).items()
            },
        }
        if name in measured.formulas:
            found[name]["formula"] = measured.formulas[name]
        if name in measured.details:
            found[name]["detail"] = {what: round(amount, 2) for what, amount in sorted(measured.details[name].items())}
        else:
            found[name] |= {
                "usd_without_alarms_dashboard_and_secret": str(round(total(without(use, FIXED)), 6)),
                "usd_after_free_allowances": str(round(total(use, free=True), 6)),
            }
    found["servers_usd_per_month"] = {name: str(price.of(HOURS_PER_MONTH)) for name, price in SERVERS.items()}
    return found


def table(name: str, use: Mapping[str, float], *, monthly: bool) -> list[str]:
    """One table, the dearest first."""
    said = [f"\n{name}", f"  {'':46} {'amount':>16} {'USD':>11}" + (f" {'after free':>11}" if monthly else "")]
    free = bill(use, free=True)
    for item, usd in bill(use).items():
        after = f" {free[item]:11.4f}" if monthly else ""
        said.append(f"  {PRICES[item].what:46} {use[item]:16,.2f} {usd:11.6f}{after}")
    after = f" {total(use, free=True):11.4f}" if monthly else ""
    said.append(f"  {'together':46} {'':16} {total(use):11.6f}{after}")
    return said


def aims(measured: Measured, machines: list[int]) -> list[str]:
    """What was wanted and what it is."""
    uses, traced = measured.usual(), measured.uses
    idle, left = uses["idle"], without(uses["idle"], FIXED)
    found: dict[str, tuple[Decimal, Decimal]] = {}
    for kind, what in (("vm", "one-hour VM lease"), ("bare_metal", "bare metal lease, 42 min boot")):
        found[what] = total(uses[kind]), AIMS[kind]
        found[f"{what}, nobody waiting"] = total(uses[f"{kind}_unattended"]), AIMS[kind]
        found[f"{what}, traced"] = total(traced[kind]), AIMS[kind]
    found |= {
        "a month of one watched machine in use": (total(uses["watched_in_use"]), AIMS["watched"]),
        "a month of one watched machine, let alone in turns": (total(uses["watched_in_turns"]), AIMS["watched"]),
        "that, each report traced": (total(traced["watched_in_turns"]), AIMS["watched"]),
        "a month idle: what runs": (total(left), AIMS["idle"]),
        "a month idle: what runs, traced": (total(without(traced["idle"], FIXED)), AIMS["idle"]),
        "a month idle, the key in Secrets Manager": (total(without(idle, ("alarms", "dashboards"))), AIMS["idle"]),
        "a month idle, that, all alarms and the dashboard": (total(idle), AIMS["idle"]),
        "a month idle, all of it, after free allowances": (total(idle, free=True), AIMS["idle"]),
        "a month idle, that and traced": (total(traced["idle"], free=True), AIMS["idle"]),
    }
    said = ["\naims"]
    for what, (usd, aim) in found.items():
        said.append(f"  {what:56} {usd:10.6f}  (aim < {aim})  {'met' if usd < aim else 'MISSED'}")
    few, many = min(machines), max(machines)
    if few < many:
        costs = [total(without(uses[f"watching_{number}"], FIXED)) for number in (few, many)]
        grown, by = costs[1] / costs[0], many / few
        word = "met" if grown < by else "MISSED"
        said.append(f"  {many} machines instead of {few} ({by:g}x) cost {grown:.1f}x (aim < {by:g}x)  {word}")
    return said


def busiest(detail: Mapping[str, float]) -> str:
    """Which states are entered most, and what a call takes."""
    states = {name.removeprefix("state "): n for name, n in detail.items() if name.startswith("state ")}
    most = sorted(states.items(), key=lambda each: -each[1])[:6]
    calls = sum(n for name, n in detail.items() if name.startswith("calls "))
    cpu = sum(n for name, n in detail.items() if name.startswith("cpu_ms "))
    billed = sum(n for name, n in detail.items() if name.startswith("billed_ms "))
    entered = ", ".join(f"{name} {amount:.0f}" for name, amount in most)
    return f"  most entered: {entered}; per call {cpu / calls:.1f} ms CPU here, {billed / calls:.0f} ms billed"


def per_report(detail: Mapping[str, float]) -> str:
    """How many reports were measured, and what one takes."""
    calls = detail["calls AgentReportFunction"]
    cpu, billed = detail["cpu_ms AgentReportFunction"] / calls, detail["billed_ms AgentReportFunction"] / calls
    row = detail["agent_row_bytes"]
    each = f"{cpu:.1f} ms CPU here and {billed:.0f} ms billed each"
    return f"  {calls:.0f} reports: {each}; the largest row has {row:.0f} bytes"


def lines(measured: Measured, assumed: Assumed, machines: list[int]) -> list[str]:
    """Everything as text."""
    uses, details = measured.usual(), measured.details
    said = [f"USD, list prices of {REGION} as of {AS_OF}; assumed: " + _assumptions(assumed)]
    for name, title in LEASES.items():
        said += [*table(title, uses[name], monthly=False), busiest(details[name])]
    said += table("a month idle", uses["idle"], monthly=True)
    for number in machines:
        title = f"a month, {number} running machines without agents"
        said += table(title, uses[f"watching_{number}"], monthly=True)
    for name, title in WATCHED.items():
        said += [*table(title, uses[name], monthly=False), f"  = {measured.formulas[name]}", per_report(details[name])]
    for number in machines:
        title = f"a month, {number} machines with agents, let alone in turns"
        said += [
            *table(title, uses[f"watched_{number}"], monthly=True),
            f"  = {measured.formulas[f'watched_{number}']}",
        ]
    said.append("\nservers, per month (730 h), without disk, address and traffic")
    said += [f"  {name + ': ' + price.what:68} {price.of(HOURS_PER_MONTH):8.2f}" for name, price in SERVERS.items()]
    said.append(f"  SkyPilot's recommendation: {SKYPILOT_SOURCE}")
    return said + aims(measured, machines)


def _assumptions(assumed: Assumed) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in asdict(assumed).items())
