"""`AuditLog`: who was let in, what was refused, and which rights and queues changed, as JSON.

    {"time": "2026-11-28T09:30:00.000000Z", "action": "refused", "user": "desk",
     "address": "10.0.0.7:40112", "code": "NotPermittedError", "reason": "'desk' may not …"}

    action            code                   reason
    let in            role                   the credential
    refused           error                  of a connection, or of a request
    ended             error                  of a connection that was let in before
    purged, redriven  the queue              the number of records
    released          the queue              the number of records
    removed           the queue
    rights changed                           with `added`, `removed` and `changed` users
    left out                                 lines beyond the limits of a second

No line holds a token. The file is only appended to, and opened again after the host's tools moved
it. A line that cannot be written is a fault in the broker's own log; nobody is refused for it.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from contrada.errors import InputError, shortened
from contrada.net.broker.jwt_verifier import JwtIdentity
from contrada.net.broker.users import Users
from contrada.service.security.principals import Principal

AUDIT_LINES_MAX: Final = 1_000
"""Lines of one action in a second. Beyond it: the rest of that second is counted in one line."""

AUDIT_USER_LINES_MAX: Final = 100
"""Lines of one action and one user, or of all strangers. Beyond it: likewise."""

_KEYS: Final = {
    "narrows": "narrow",
    "may_link": "link",
    "may_inspect": "inspect",
    "may_push": "sinks",
    "may_block": "block",
    "expires_us": "expires",
    "quotas": "quota",
}
_LOG: Final = logging.getLogger(__name__)


class AuditLog:
    """An open file of audited events, until `close`."""

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        """Raises InputError where the file cannot be opened."""
        self._path, self._clock = path, clock
        try:
            self._file = WatchedFileHandler(path, encoding="utf-8")
        except OSError as error:
            raise InputError(str(path), error.strerror or str(error)) from None
        self._file.handleError = self._fail  # type: ignore[method-assign]
        self._second = 0
        self._lines: Counter[tuple[str, str | None]] = Counter()
        self._left_out = 0
        self._has_failed = False

    def record(
        self,
        action: str,
        user: str = "",
        address: str = "",
        code: str = "",
        reason: str = "",
        claimed: str = "",
        **more: Any,
    ) -> None:
        """Appends a line, within the limits. Cost: one write of the file system.

        `claimed` is shown as the user of a stranger with a wrong token, and counts as no user.
        """
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._lines.clear()
            self._note_left_out()
        lines = self._lines
        lines[action, user] += 1
        if lines[action, user] > AUDIT_USER_LINES_MAX or lines[action, None] >= AUDIT_LINES_MAX:
            self._left_out += 1
            return
        lines[action, None] += 1  # Written ones alone: a flood of one user hides no other.
        shown = user or claimed
        self._write(action, user=shown, address=address, code=code, reason=reason, **more)

    def _note_left_out(self) -> None:
        count, self._left_out = self._left_out, 0
        if count:
            self._write("left out", count=count)

    def _write(self, action: str, **given: Any) -> None:
        time = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        line = {"time": time, "action": action, **{key: it for key, it in given.items() if it}}
        text = msgspec.json.encode(line).decode()
        try:
            self._file.emit(logging.makeLogRecord({"msg": text}))
        except OSError as error:  # The file could not be opened again.
            self._report(error)
        else:
            self._has_failed = False

    def _fail(self, record: logging.LogRecord) -> None:
        """Called by the handler within the `except` of a failed write."""
        raise

    def _report(self, error: OSError) -> None:
        if not self._has_failed:  # Once, until a line is written again.
            self._has_failed = True
            said = {"path": self._path, "reason": error}
            _LOG.error("the audit log %(path)s cannot be written: %(reason)s", said)

    def record_change(self, before: Users, now: Users) -> None:
        """Appends what changes of users change. Cost: the rights of all users."""
        old, new = before.principals, now.principals
        changed = {
            name: found
            for name in old.keys() & new.keys()
            if (found := _rights_changed(old[name], new[name]) | _credentials(name, before, now))
        }
        self.record(
            "rights changed",
            added=sorted(new.keys() - old.keys()),
            removed=sorted(old.keys() - new.keys()),
            changed=changed,
            reason="" if new.keys() ^ old.keys() or changed else "none",
        )

    def close(self) -> None:
        """Closes the file, with a last line of what was left out."""
        self._note_left_out()
        self._file.close()


def credential_of(principal: Principal) -> str:
    """Returns what identified a user, without a secret."""
    credential = principal.credential
    if not credential:
        return "no credential"
    if JwtIdentity.of_credential(credential) is not None:
        return "a token of the issuer"
    return "a token" if "$" in credential else f"the certificate of {credential!r}"


def _rights_changed(old: Principal, new: Principal) -> dict[str, Any]:
    compared = [each.name for each in fields(Principal) if each.compare]
    return {
        _KEYS.get(key, key): [shortened(str(getattr(of, key))) for of in (old, new)]
        for key in compared
        if getattr(old, key) != getattr(new, key)
    }


def _credentials(name: str, before: Users, now: Users) -> dict[str, str]:
    """Returns which credentials of a user differ; neither they nor their records are shown."""
    found = {}
    old, new = (
        {shown for shown, user in of.certificates.items() if user == name} for of in (before, now)
    )
    if before.records.get(name) != now.records.get(name):
        found["token"] = "changed"
    if before.old_records.get(name) != now.old_records.get(name):
        found["old_token"] = "changed"
    if old != new:
        found["certificate"] = "changed"
    return found
