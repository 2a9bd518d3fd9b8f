"""The rate limit in front of the API: so many calls per second (and per hour) from one address."""

from collections.abc import MutableMapping

from gpulease_sim.vultr.settings import Settings

HOUR = 3600


class RateLimit:
    """Counts calls in whole seconds and whole hours of the simulator's clock."""

    def __init__(self) -> None:
        self._seconds: dict[str, tuple[int, int]] = {}
        self._hours: dict[str, tuple[int, int]] = {}

    def wait(self, settings: Settings, client: str, now: float) -> int | None:
        """Seconds after which the call may be tried again; None: it may pass."""
        hourly, per_second = settings.requests_per_hour, settings.requests_per_second
        if hourly is not None and _count(self._hours, client, int(now // HOUR)) > hourly:
            return max(1, int(HOUR - now % HOUR))
        if per_second is not None and _count(self._seconds, client, int(now // 1)) > per_second:
            return 1
        return None


def _count(windows: MutableMapping[str, tuple[int, int]], client: str, window: int) -> int:
    previous, count = windows.get(client, (window, 0))
    count = count + 1 if previous == window else 1
    windows[client] = (window, count)
    return count
