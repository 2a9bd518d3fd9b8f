"""What is checked against the world before a lease is made: names the catalogue does not know, and requests that no
offer fits. Every complaint names its field, its value and what would be right, because nobody waits ten minutes to
learn of a typing error.
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches

from gpulease.api.catalogue import Catalogue
from gpulease.api.problems import FieldError, Scalar, echo, invalid
from gpulease.api.views import money
from gpulease.domain.offer import Offer
from gpulease.domain.selection import explain_no_match, matching, same_gpu
from gpulease.domain.spec import LeaseSpec, PrivateNetwork, SpotPolicy
from gpulease.errors import InputInvalid
from gpulease.ports import Providers

MAX_NAMES = 30

_WITHOUT: dict[str, object] = {
    "gpu": (),
    "min_gpu_memory_gib": None,
    "min_vcpus": None,
    "min_memory_gib": None,
    "min_disk_gb": None,
    "providers": (),
    "regions": (),
    "plans": (),
    "plan_kinds": (),
    "spot": SpotPolicy.ANY,
    "private_network": PrivateNetwork.PREFERRED,
    "max_price_per_hour_usd": None,
}
"""A filter's value that lets everything through."""


def offers_to_try(spec: LeaseSpec, catalogue: Catalogue, providers: Providers) -> list[Offer]:
    """Offers that would be tried, in order; at least one. Raises a 422 problem over everything that is wrong."""
    errors = unknown_names(spec, catalogue)
    if errors:
        raise invalid(errors)
    offers = matching(spec, catalogue.with_gpus(spec.gpu))
    if not offers:
        field, sentence = explain_no_match(spec, catalogue.offers)
        raise invalid(
            _what_excludes(spec, catalogue.offers)
            or [FieldError(field=field, message=sentence, value=_value(spec, field))],
            code="no_matching_offer",
            detail=f"no offer matches: {sentence}",
        )
    if spec.image is not None:
        _check_image(spec.image, offers, providers)
    return offers


def unknown_names(spec: LeaseSpec, catalogue: Catalogue) -> list[FieldError]:
    """GPU models, providers, regions and plans that the catalogue does not have."""
    errors = [
        _unknown(f"gpu[{i}]", "GPU model", gpu, catalogue.gpus)
        for i, gpu in enumerate(spec.gpu)
        if not any(same_gpu(gpu, known) for known in catalogue.gpus)
    ]
    for i, provider in enumerate(spec.providers):
        field = f"providers[{i}]"
        if provider not in catalogue.accounts:
            errors.append(_unknown(field, "provider", provider, catalogue.accounts, "configured"))
        elif provider not in catalogue.providers:
            errors.append(
                _unknown(field, "provider in the catalogue", provider, catalogue.providers, "in the catalogue")
            )
    if errors or not (spec.regions or spec.plans):
        return errors
    chosen = spec.providers or tuple(catalogue.providers)
    regions = {region for provider, region in catalogue.places if provider in chosen}
    plans = {plan for provider, plan in catalogue.plans if provider in chosen}
    errors += [
        _unknown(f"regions[{i}]", f"region of {', '.join(sorted(chosen))}", region, regions)
        for i, region in enumerate(spec.regions)
        if region not in regions
    ]
    errors += [
        _unknown(f"plans[{i}]", f"plan of {', '.join(sorted(chosen))}", plan, plans)
        for i, plan in enumerate(spec.plans)
        if plan not in plans
    ]
    return errors


def _unknown(field: str, what: str, value: str, known: Iterable[str], list_name: str = "known") -> FieldError:
    names = sorted(known)
    folded = {name.casefold(): name for name in names}
    close = [folded[c] for c in get_close_matches(value.casefold(), folded, n=3, cutoff=0.5)]
    hint = f"; did you mean {' or '.join(close)}?" if close else ";"
    shown = ", ".join(names[:MAX_NAMES]) + (f", … ({len(names)} in all)" if len(names) > MAX_NAMES else "")
    message = f"{echo(value)!r} is no known {what}{hint} {list_name}: {shown or 'none'}"
    return FieldError(field=field, message=message, value=echo(value))


def _what_excludes(spec: LeaseSpec, offers: tuple[Offer, ...]) -> list[FieldError]:
    """For each filter which alone keeps everything out: what there would be without it."""
    errors = []
    counts = sorted({o.gpu_count for o in offers} - {spec.gpu_count})
    fitting = [n for n in counts if matching(spec.model_copy(update={"gpu_count": n}), offers)]
    if fitting:
        text = f"no offer that fits otherwise has {spec.gpu_count} GPUs; there are {', '.join(map(str, fitting))}"
        errors.append(FieldError(field="gpu_count", message=text, value=spec.gpu_count))
    for field, anything in _WITHOUT.items():
        if getattr(spec, field) == anything:
            continue
        found = matching(spec.model_copy(update={field: anything}), offers)
        if found:
            best = min(found, key=_price)
            text = (
                f"without this limit {len(found)} offers match; "
                f"the cheapest costs ${money(best.price_per_hour_usd)} per hour ({best.key})"
            )
            errors.append(FieldError(field=field, message=text, value=_value(spec, field)))
    return errors


_price: Callable[[Offer], tuple[object, str]] = lambda offer: (offer.price_per_hour_usd, offer.key)  # noqa: E731


def _value(spec: LeaseSpec, field: str) -> Scalar:
    value = getattr(spec, field, None)
    if isinstance(value, tuple):
        return echo(", ".join(str(v) for v in value))
    return None if value is None else echo(value if isinstance(value, int | float) else str(value))


def _check_image(image: str, offers: list[Offer], providers: Providers) -> None:
    """Refuse an image whose form suits none of the offers; one that suits some is left to the attempts."""
    complaint = ""
    for provider, kind in dict.fromkeys((o.provider, o.kind) for o in offers):
        try:
            providers.get(provider).check_image(image, kind)
        except InputInvalid as error:
            complaint = complaint or str(error)
        else:
            return
    raise invalid([FieldError(field="image", message=complaint, value=echo(image))])
