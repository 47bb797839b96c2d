"""A bearer token for kafka-python, which asks an object for it."""

from kafka.net.sasl.oauth import AbstractTokenProvider


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token
