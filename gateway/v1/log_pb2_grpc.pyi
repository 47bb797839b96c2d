from typing import Any

class LogServiceStub:
    def __init__(self, channel: Any) -> None: ...
    Produce: Any
    ProduceStream: Any
    Consume: Any
    Subscribe: Any
    Read: Any

class LogServiceServicer: ...

def add_LogServiceServicer_to_server(servicer: LogServiceServicer, server: Any) -> None: ...
