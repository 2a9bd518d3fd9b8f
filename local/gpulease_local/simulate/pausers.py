"""Users who pause their machine, want it back later, and ask until they have it or give it up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpulease.domain.lease import LeaseState

from gpulease_local.simulate.effects import API_FUNCTION, Effects, Killed
from gpulease_local.simulate.expected import Story
from gpulease_local.simulate.scenario import Wish
from gpulease_local.simulate.virtual import ApiRefused, VirtualStack

ASK_AGAIN_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 30.0
_REPLACE = {"on_no_capacity": "replace", "wait_seconds": "0"}
OVER = frozenset({LeaseState.RELEASING, LeaseState.RELEASED})


@dataclass
class _Use:
    wish: Wish
    turn: int = 0
    """Which of the wish's pauses is next."""
    looked_at: float = 0.0
    asked: int = 0
    """How often it was asked for."""


@dataclass
class Pausers:
    """`later(seconds, act)` puts something on the agenda; `story_of` by lease id."""

    stack: Callable[[], VirtualStack]
    effects: Effects
    later: Callable[[float, Callable[[], None]], None]
    story_of: Callable[[str], Story]
    _uses: dict[str, _Use] = field(default_factory=dict)

    def runs(self, lease_id: str, wish: Wish) -> None:
        """The machine runs for the first time."""
        if wish.pauses:
            self._uses[lease_id] = _Use(wish)
            self._plan(lease_id)

    def _plan(self, lease_id: str) -> None:
        use = self._uses[lease_id]
        if use.turn < len(use.wish.pauses):
            self.later(use.wish.pauses[use.turn][0], lambda: self._pause(lease_id))

    def _pause(self, lease_id: str) -> None:
        if self._is_over(lease_id):
            return
        use = self._uses[lease_id]
        if not self._say(lease_id, "pause", lambda: self._pause(lease_id)):
            return
        use.looked_at = self.stack().clock.time()
        self.later(use.wish.pauses[use.turn][1], lambda: self._want_back(lease_id))
        use.turn += 1

    def _want_back(self, lease_id: str) -> None:
        if self._is_over(lease_id):
            return
        use, now, state = self._uses[lease_id], self.stack().clock.time(), self.stack().lease(lease_id).state
        self.story_of(lease_id).more_in_motion_seconds += now - use.looked_at
        use.looked_at = now
        if state is LeaseState.RUNNING:
            self._plan(lease_id)
            return
        if state is LeaseState.PAUSED:
            # Every other time another machine will do, at once.
            self._say(lease_id, "resume", lambda: None, {} if use.asked % 2 else _REPLACE)
            use.asked += 1
        self.later(LOOK_AGAIN_SECONDS, lambda: self._want_back(lease_id))

    def _is_over(self, lease_id: str) -> bool:
        return self.story_of(lease_id).given_back_at is not None or self.stack().lease(lease_id).state in OVER

    def _say(self, lease_id: str, word: str, again: Callable[[], None], query: Mapping[str, str] | None = None) -> bool:
        """Whether it was accepted; after a failure of the API, it is said again."""
        lease = self.stack().lease(lease_id)
        try:
            with self.effects.inside(API_FUNCTION, lease.name):
                self.stack().api("POST", f"/v1/leases/{lease_id}/{word}", owner=lease.owner, query=dict(query or {}))
            return True
        except Killed:
            self.effects.kills_heard += 1
        except ApiRefused as refused:
            if refused.status == 409:
                # In another state by now, or a pause would keep nothing of it.
                return False
            if refused.status < 500:
                raise
        self.later(ASK_AGAIN_SECONDS, again)
        return False
