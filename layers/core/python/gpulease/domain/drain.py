"""Whether a deployment is being emptied: nothing new begins, and what there is is given back."""

from gpulease.domain.model import Instant, Model


class Drain(Model):
    """The switch. `since` and `by`: when and by whom it was put on, whoever does so again until it is off."""

    on: bool = False
    since: Instant | None = None
    by: str = ""
