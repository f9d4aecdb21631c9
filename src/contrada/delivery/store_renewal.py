"""What is done to a copy of a store before a server starts on it.

Such a server has forgotten what came after the copy, and others have not. So each of its sequences
of numbers goes on far above what the server may have given out since. No position of a log, and no
place in a stream, ever stands for two things. The server keeps its life: what its streams held when
the copy was made is sent again under the same numbers, and homes that have it recognise it. The
boot number is far higher, too. Others see the higher boot number and resend what this server may
have lost.

    positions of a log     kept in the copy | left out: given out since, or never | what comes now
"""

from typing import Final

from contrada.delivery.notes import Notes
from contrada.delivery.store import OWN_LOGS, Store

RESTORED_GAP: Final = 2**40
"""Numbers that a restored server leaves out of each sequence of numbers: more than it has given out
since the copy was made. Beyond it: two things would have one number."""


def records_between(read: int, position: int) -> int:
    """How many positions of a log between two stand for records: those left out do not.

    The first was read, maybe before the log was restored, and after the copy was made. Then what
    has its number now, and what follows, is left out; so what is a little less than whole gaps is
    none.
    """
    count = (position - read - 1) % RESTORED_GAP
    return count if count < RESTORED_GAP // 2 else 0


def renew(store: Store) -> None:
    """Makes a copy of a store one on which a server may start; to be synced.

    Raises StoreError; LimitError where a log has too many intervals that are acknowledged.
    """
    notes = Notes(store)
    for name, (incarnation, boot, sequences) in list(notes.of("life", tuple[int, int, bool])):
        notes.put("life", name, (incarnation, boot + RESTORED_GAP, sequences))
    for owner, (incarnation, reserved, since) in list(notes.of("out", tuple[int, int, int])):
        notes.put("out", owner, (incarnation, reserved + RESTORED_GAP, since))
    # Of homes that the copy does not know it may have met some since.
    begin = next((number for _, number in notes.of("first", int)), 1)
    notes.put("first", "", begin + RESTORED_GAP)
    following = next((number for _, number in notes.of("next", int)), 1)
    notes.put("next", "subscription", following + RESTORED_GAP)
    for log in store.logs():
        if not log.startswith(OWN_LOGS):
            store.leave_out(log, RESTORED_GAP)
