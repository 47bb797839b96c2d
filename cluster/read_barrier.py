"""The barrier of linearizable reads: when a leader may answer with the end of its log.

A leader that was replaced and does not know it has an old high watermark. A linearizable read shows every record that
was acknowledged with acks=all, and every linearizable read that was answered, before the read began. So the leader
waits until it knows that no other replica led the partition when the read began:

    client                leader                              follower that might be elected
      │ read 7 ─────────────►│ begins read 7
      │                      │ ◄───────────── a fetch that was under way proves nothing: it may be as old as the network
      │                      │ response ─────────────────────────►│ received after read 7 began
      │                      │ ◄───────────── the next fetch, in this leader epoch: it follows, and leads nothing newer
      │◄── high watermark ───│ every possible leader has done so

A replica that fetches in epoch e has not led in a later epoch. The next leader comes from the maximal ISR or the ELR of
the leader's newest state of the partition: within an epoch replicas enter the ISR by proposals of this leader only, and
enter the ELR from the ISR only. If each of them has sent a fetch in this epoch after the read began, then no later
epoch had a leader when it began, and all earlier acknowledgements are below this leader's high watermark, once that has
reached the start of its epoch. There is no lease and no clock in it.

A fetch counts by the response that it follows, not by its arrival: it may have been delayed while its sender was
elected. Reads are numbered in the order in which they begin, and `answered` is the newest read that had begun when the
leader sent that response. So one pair of fetches serves all reads that wait.

If a possible leader does not fetch, the active controller can confirm the epoch instead: by a record of the metadata
that is committed after the read began, in a state in which this replica leads in this epoch.
"""

from collections.abc import Set
from typing import Final

NO_READ: Final = 0  # numbers begin at 1


class ReadBarrier:
    """Of one leader in one leader epoch."""

    __slots__ = ("_confirmed", "_followed", "_leader_epoch")

    def __init__(self, leader_epoch: int) -> None:
        self._leader_epoch = leader_epoch
        self._followed: dict[int, int] = {}  # by follower: it has followed in this epoch after this read began
        self._confirmed = NO_READ  # the controller has confirmed this epoch after this read began

    def note_fetch(self, broker_id: int, *, leader_epoch: int, answered: int) -> None:
        """Records a fetch of a follower, with the leader epoch that it has for this partition."""
        if leader_epoch == self._leader_epoch:
            self._followed[broker_id] = max(self._followed.get(broker_id, NO_READ), answered)

    def note_confirmed(self, *, leader_epoch: int, requested: int) -> None:
        """The controller has confirmed a leader epoch; `requested` is the newest read that had begun when the request
        was sent."""
        if leader_epoch == self._leader_epoch:
            self._confirmed = max(self._confirmed, requested)

    def missing(self, read: int, possible_leaders: Set[int]) -> set[int]:
        """The possible leaders that may lead in a later epoch since before the read began."""
        if self._confirmed >= read:
            return set()
        return {each for each in possible_leaders if self._followed.get(each, NO_READ) < read}
