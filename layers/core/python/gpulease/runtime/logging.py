"""Structured logs through Powertools, and the masks that keep secrets out of them."""

from aws_lambda_powertools import Logger

from gpulease.domain.event import Fact

_logger = Logger(service="gpulease", use_rfc3339=True)


class PowertoolsLog:
    """`ports.Log` on the Powertools logger."""

    def info(self, event: str, **facts: object) -> None:
        _logger.info(event, extra=facts)

    def warning(self, event: str, **facts: object) -> None:
        _logger.warning(event, extra=facts)

    def error(self, event: str, **facts: object) -> None:
        _logger.error(event, extra=facts)


class LogNotifier:
    """Alarms as ERROR lines; each name has an entry in the runbook."""

    def __init__(self, log: PowertoolsLog) -> None:
        self._log = log

    def alarm(self, name: str, text: str, facts: dict[str, Fact]) -> None:
        self._log.error("alarm", alarm=name, text=text, **facts)
