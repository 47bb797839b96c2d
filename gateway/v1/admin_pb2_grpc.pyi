from typing import Any

class AdminServiceStub:
    def __init__(self, channel: Any) -> None: ...
    ListTopics: Any
    DescribeTopic: Any
    CreateTopic: Any
    DeleteTopic: Any
    ListOffsets: Any
    ListGroups: Any
    DescribeGroup: Any
    DeleteGroup: Any
    ListGroupOffsets: Any
    CommitGroupOffsets: Any
    DeleteGroupOffsets: Any

class AdminServiceServicer: ...

def add_AdminServiceServicer_to_server(servicer: AdminServiceServicer, server: Any) -> None: ...
