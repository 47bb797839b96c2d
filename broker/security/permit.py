"""Permits: what a connection may do on its fast path without another authorization check.

The general path authorizes each request. A fast path does not decode requests, so the connection keeps the result: its
principal may perform one operation on one topic, according to the ACLs when the permit was issued. The ACL image gets a
new stamp with each change, and `Connection.received` compares the two by identity: after any change of an ACL the next
request takes the general path, which issues a new permit or rejects the request.

This is the only place where the authorization of a fast path is checked.
"""

from typing import Final

from trioka.cluster.image.acls import AclStamp


class Permit:
    __slots__ = ("principal", "stamp", "topic")

    def __init__(self, principal: str, topic: str, stamp: AclStamp) -> None:
        self.principal = principal
        self.topic = topic
        self.stamp: Final = stamp
