"""Routes of the account itself: who it is and what it owes. Limits are not shown, as at the real provider."""

from datetime import UTC, datetime

from gpulease_sim.vultr.account import Account
from gpulease_sim.vultr.api import Call, Json, Reply, Routes, timestamp
from gpulease_sim.vultr.book import HOUR, cost_of

ACLS = ["manage_users", "subscriptions_view", "subscriptions", "provisioning", "billing", "abuse", "dns", "upgrade"]


def add_routes(routes: Routes) -> None:
    """Register everything of this module."""
    routes.add("GET", "/account", _account)
    routes.add("GET", "/billing/pending-charges", _pending_charges)


def _account(account: Account, call: Call, ids: list[str]) -> Reply:
    return Reply(
        200,
        {
            "account": {
                "name": "Simulated account",
                "email": account.settings.owner_email,
                "acls": ACLS,
                "balance": -305.0,
                "pending_charges": float(round(account.book.cost(call.now), 2)),
                "last_payment_date": "2026-01-01T00:00:00+00:00",
                "last_payment_amount": -10.0,
            }
        },
    )


def _pending_charges(account: Account, call: Call, ids: list[str]) -> Reply:
    month = datetime.fromtimestamp(call.now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    charges: list[Json] = []
    for entry in account.book:
        total = cost_of(entry, call.now)
        end = min(call.now, entry.destroyed_from)
        if not total or end < month.timestamp():
            continue
        charges.append(
            {
                "description": entry.label or entry.id,
                "product": entry.plan or entry.kind,
                "start_date": timestamp(entry.created),
                "end_date": timestamp(end),
                "units": max(1, -int((entry.created - end) // HOUR)),
                "unit_type": "hours",
                "unit_price": float(entry.rates[-1][1]),
                "total": float(total),
            }
        )
    return Reply(200, {"pending_charges": charges})
