"""The error of an HTTP interface with Confluent's codes: REST and the schema registry."""


class CodedError(Exception):
    """A request that is refused. The text is a sentence for the client; a code of five digits begins with the HTTP
    status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100
