"""What storage and addresses cost: a monthly price, by the started hour, never more than the month's price."""

from decimal import Decimal

from gpulease_sim.vultr.account import Account
from gpulease_sim.vultr.api import Call
from gpulease_sim.vultr.book import Entry
from gpulease_sim.vultr.machines import NEVER


def charge(
    account: Account,
    call: Call,
    kind: str,
    object_id: str,
    label: str,
    region: str,
    monthly_usd: Decimal,
    month_hours: int,
    tags: tuple[str, ...] = (),
) -> None:
    """Write an object that is billed from now on into the book."""
    account.add_entry(
        Entry(
            kind=kind,
            id=object_id,
            label=label,
            region=region,
            plan=None,
            tags=tags,
            created=call.now,
            active_from=call.now,
            destroyed_from=NEVER,
            rates=[(call.now, monthly_usd / month_hours, monthly_usd)],
        )
    )


def recharge(account: Account, call: Call, object_id: str, monthly_usd: Decimal, month_hours: int) -> None:
    """Another price from now on."""
    account.book.entry(object_id).rates.append((call.now, monthly_usd / month_hours, monthly_usd))
    account.touch("book", object_id)
