"""`renew`: prepares a copy of a store before a server starts on it.

Such a server has forgotten everything after the copy, and others have not. So each of its sequences
of numbers continues far above any number that it may have assigned since; none ever has two
meanings. Its incarnation stays, so that owners recognise shipments that are sent again. By its boot
number, which is far higher, other servers notice that it may have lost shipments. See
docs/delivery.md, "The store".
"""

from typing import Final

from contrada.delivery.store import OWN_LOGS, Notes, Store

RESTORED_GAP: Final = 2**40
"""Numbers that a restored server leaves out of each sequence of numbers: more than it has assigned
since the copy was made. Beyond it: one number would have two meanings."""


def records_between(read: int, position: int) -> int:
    """Returns how many positions between two belong to records: those left out do not.

    The first was read, maybe before the log was restored, and after the copy was made. Then its
    present record, and the following positions, are left out; so slightly less than whole gaps
    counts as none.
    """
    count = (position - read - 1) % RESTORED_GAP
    return count if count < RESTORED_GAP // 2 else 0


def renew(store: Store) -> None:
    """Turns a copy of a store into one on which a server may start; the caller syncs it.

    Raises StoreError; LimitError if a log has too many acknowledged intervals.
    """
    notes = Notes(store)
    for name, (incarnation, boot, sequences) in list(notes.of("life", tuple[int, int, bool])):
        notes.put("life", name, (incarnation, boot + RESTORED_GAP, sequences))
    for owner, (incarnation, reserved, since) in list(notes.of("out", tuple[int, int, int])):
        notes.put("out", owner, (incarnation, reserved + RESTORED_GAP, since))
    # It may have sent to owners that the copy does not know.
    begin = next((number for _, number in notes.of("first", int)), 1)
    notes.put("first", "", begin + RESTORED_GAP)
    following = next((number for _, number in notes.of("next", int)), 1)
    notes.put("next", "subscription", following + RESTORED_GAP)
    for log in store.logs():
        if not log.startswith(OWN_LOGS):
            store.leave_out(log, RESTORED_GAP)
