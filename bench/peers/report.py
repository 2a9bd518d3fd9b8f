"""The figures of both products side by side, as text of about 120 columns."""

from collections.abc import Callable, Iterator

from bench.peers.model import Idle, Left, Product, Ready, Results, Situation, Spread, Taken

_NOT_MEASURED = "-"


def lines(results: Results, ours: str, theirs: str) -> Iterator[str]:
    """Everything that was measured."""
    our, their = results.product(ours), results.product(theirs)
    yield f"{our.name} {our.version} and {their.name} {their.version} against one simulated Vultr; {results.machine}"
    yield ""
    yield from _figures(our, their)
    yield ""
    yield "What the provider still has: when the product says that it is done, and (gpulease) 30 simulated minutes"
    yield "after the request."
    for key in _keys(our, their):
        yield ""
        yield from _one_situation(key, our, their)
    yield ""
    yield "Measured:"
    yield from (f"  {line}" for each in (our, their) for line in _when(each))


def _keys(*products: Product) -> list[str]:
    found: list[str] = []
    for product in products:
        found += [each.key for each in product.leaks.situations if each.key not in found] if product.leaks else []
    return found


def _figures(our: Product, their: Product) -> Iterator[str]:
    yield f"{'':46}{our.name:>34}{their.name:>34}"
    for row, value in _ROWS:
        ours, theirs = value(our), value(their)
        if ours or theirs:
            yield f"{row:46}{ours or _NOT_MEASURED:>34}{theirs or _NOT_MEASURED:>34}"


def _ready_row(number: int, which: Callable[[Ready], Spread]) -> Callable[[Product], str]:
    """The first is without a network where a product can do that, the last in one."""

    def value(product: Product) -> str:
        kinds = [each for each in product.ready if each.how.startswith("no ") == (number == 0)]
        return _spread(which(kinds[0]), "s") if kinds else ""

    return value


def _idle_row(which: Callable[[Idle], str]) -> Callable[[Product], str]:
    return lambda product: which(product.idle) if product.idle else ""


def _spread(value: Spread, unit: str) -> str:
    if value.n == 1:
        return f"{value.median:g} {unit}"
    return f"{value.median:g} {unit} ({value.min:g} to {value.max:g}, n={value.n})"


_ROWS: tuple[tuple[str, Callable[[Product], str]], ...] = (
    ("provider active → shown as usable, no network", _ready_row(0, lambda ready: ready.active_to_running_seconds)),
    ("provider active → shown as usable, in a network", _ready_row(1, lambda ready: ready.active_to_running_seconds)),
    ("request → create call, no network", _ready_row(0, lambda ready: ready.ask_to_create_seconds)),
    ("request → create call, in a network", _ready_row(1, lambda ready: ready.ask_to_create_seconds)),
    ("start of the control plane, nothing kept", _idle_row(lambda idle: f"{idle.start_seconds:g} s")),
    ("memory with nothing rented (RSS)", _idle_row(lambda idle: _spread(idle.rss_mib, "MiB"))),
    ("CPU per minute with nothing rented", _idle_row(lambda idle: _spread(idle.cpu_seconds_per_minute, "s"))),
)


def _one_situation(key: str, *products: Product) -> Iterator[str]:
    played = [(product.name, product.leaks.get(key) if product.leaks else None) for product in products]
    yield f"{key}: {next(each.what for _, each in played if each is not None)}"
    for name, each in played:
        if each is None:
            yield f"  {name:9} not measured"
        else:
            yield f"  {name:9} {_machines(each)}"
            yield f"  {'':9} shown: {_told(each)}"
            if each.note:
                yield f"  {'':9} ({each.note})"


def _machines(each: Situation) -> str:
    created = f"created {_count(each.created, 'machine')}"
    ended = ""
    if each.ended_after_seconds is not None:
        ended = f", {each.ended_after_seconds:g} s after giving back"
    if each.gone_after_seconds is not None:
        ended += f" (all destroyed after {each.gone_after_seconds:g} s)"
    later = f"; later {_left(each.later)}" if each.later is not None else ""
    return f"{created}; left {_left(each.left)}{ended}{later}"


def _left(left: Left) -> str:
    return f"{_count(left.machines, 'machine')}, {_count(left.networks, 'network')}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _told(each: Situation) -> str:
    parts = [each.shown_before]
    parts += [f"after giving back: {each.shown_after}"] if each.shown_after != each.shown_before else []
    parts += [f"later: {each.shown_later}"] if each.shown_later not in ("", each.shown_after) else []
    return "; ".join(parts)


def _when(product: Product) -> Iterator[str]:
    taken: list[tuple[str, Taken]] = [(f"ready, {each.how}", each.taken) for each in product.ready]
    taken += [("idle", product.idle.taken)] if product.idle else []
    taken += [("situations", product.leaks.taken)] if product.leaks else []
    for what, when in taken:
        yield f"{product.name:9} {what}: {when.at:%Y-%m-%d %H:%M} UTC, load {when.load:g} on {when.cores} cores"


def shortcomings(product: Product, ready_limit_seconds: float) -> list[str]:
    """Why a product does not pass: anything left, or shown as usable too late."""
    found = []
    for ready in product.ready:
        late = ready.active_to_running_seconds.max
        if late > ready_limit_seconds:
            found.append(f"{ready.how}: running {late:g} s after active, at most {ready_limit_seconds:g} s is right")
    for each in product.leaks.situations if product.leaks else ():
        # A network that leases share is held by a record of its own, which may end a little later than they do.
        if each.left.machines and each.ended_after_seconds is not None:
            found.append(f"{each.key}: {_left(each.left)} left although all is shown as released")
        if each.later is not None and not each.later.nothing:
            found.append(f"{each.key}: {_left(each.later)} left after 30 minutes")
    return found
