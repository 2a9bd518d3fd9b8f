"""`ports.Providers`: the configured accounts, each adapter built when it is first asked for.

Invariant: an account that is taken out of the configuration is drained, not dropped. It is offered for nothing new, and
what the ledger still holds there is watched and given back as before, with the key that is still stored for it.
"""

from collections.abc import Sequence

from gpulease.errors import InputInvalid
from gpulease.ports import Clock, Log, Secrets, SharedReads
from gpulease.providers.http import Transport
from gpulease.providers.registry import PROVIDERS, build
from gpulease.runtime.guard import GuardedProvider
from gpulease.runtime.settings import Settings
from gpulease.runtime.world import monotonic, sleep


def _over_the_network() -> Transport:
    # Imported on use: a step that calls no provider does not pay for it.
    from gpulease.providers.requests_transport import RequestsTransport

    return RequestsTransport(monotonic=monotonic)


def _options(settings: Settings, provider: str, account: str) -> object | None:
    """What the account's adapter needs besides."""
    if provider != "aws":
        return None
    from gpulease.providers.aws.options import AwsOptions, parse_roles, parse_subnets

    role_arn, external_id = parse_roles(settings.aws_roles).get(account, ("", ""))
    return AwsOptions(
        regions=tuple(region.strip() for region in settings.aws_regions.split(",") if region.strip()),
        subnets=parse_subnets(settings.aws_subnets),
        security_group=settings.aws_security_group,
        image=settings.aws_image,
        role_arn=role_arn,
        external_id=external_id,
    )


class ConfiguredProviders:
    def __init__(
        self,
        settings: Settings,
        secrets: Secrets,
        clock: Clock,
        log: Log,
        shared: SharedReads,
        transport: Transport | None = None,
    ) -> None:
        self._settings = settings
        self._secrets = secrets
        self._clock = clock
        self._log = log
        self._shared = shared
        self._transport = transport
        self._built: dict[str, GuardedProvider] = {}

    def accounts(self) -> Sequence[str]:
        return tuple(self._settings.account_providers())

    def get(self, account: str) -> GuardedProvider:
        names = self._settings.account_providers()
        name = names.get(account) or (account if account in PROVIDERS else "")
        if not name:
            known = ", ".join(names) or "none"
            raise InputInvalid(f"no provider account {account!r} is configured; configured: {known}", field="providers")
        if account not in self._built:
            adapter = build(
                account,
                name,
                self._transport or _over_the_network(),
                self._secrets,
                clock=self._clock,
                log=self._log,
                sleep=sleep,
                base_url=self._settings.base_urls().get(name, ""),
                shared=self._shared,
                options=_options(self._settings, name, account),
            )
            self._built[account] = GuardedProvider(adapter, shared=self._shared, clock=self._clock, log=self._log)
        return self._built[account]

    def shut_for_seconds(self, account: str, region: str) -> float:
        return self.get(account).shut_for_seconds(region)
