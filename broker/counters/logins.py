"""SASL logins of one listener, counted under Kafka's names: updated by logins, read by metrics."""

from typing import Final


class LoginCounts:
    __slots__ = ("expired_killed", "failed", "failed_reauthentications", "reauthentications", "successful")

    def __init__(self) -> None:
        self.successful = self.failed = self.reauthentications = self.failed_reauthentications = 0
        self.expired_killed = 0  # connections that were closed because their session had ended


NO_LOGINS: Final = LoginCounts()
