"""From what the user typed to one lease: an id, else the exact name of a lease that is not released."""

import re

from gpulease_cli.client import ApiProblem, Client
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.text import clean, closest
from gpulease_cli.views import LIVE_STATES, LeaseView

_ID = re.compile(r"l-[a-z2-7]{12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""What the API can search for."""


def resolve(client: Client, word: str, *, released_too: bool = False) -> LeaseView:
    """The lease, as read from the API. Raises CliError: not found (4), or the name fits several (2).

    `released_too`: when no live lease has the name, the newest released one is meant (for looking, never for changing).
    """
    if _ID.fullmatch(word):
        try:
            return client.lease(word)
        except ApiProblem as problem:
            if problem.status != 404:
                raise
    live, old = _named(client, word, LIVE_STATES), []
    if len(live) > 1:
        raise CliError(
            f"{len(live)} leases are called {word!r}; name one by its id: {', '.join(lease.id for lease in live)}",
            field="lease",
        )
    if not live:
        old = _named(client, word, ("released",))
    found = live or (old if released_too else [])
    if found:
        return client.lease(found[0].id)
    raise CliError(_not_found(client, word, released=bool(old)), field="lease", code=ExitCode.NOT_FOUND)


def _named(client: Client, word: str, states: tuple[str, ...]) -> list[LeaseView]:
    if not _NAME.fullmatch(word):
        return []
    return [lease for lease in client.leases(states=states, name=word) if lease.name == word]


def _not_found(client: Client, word: str, *, released: bool) -> str:
    if released:
        return f"{word!r} is released already; `gpulease ls --all` shows it"
    near = closest(word, [lease.name for lease in client.leases(states=LIVE_STATES)])
    right = f"did you mean {near}?" if near else "`gpulease ls` shows what there is"
    return f"there is no lease {clean(word)!r}; {right}"
