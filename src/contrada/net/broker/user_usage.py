"""`UserUsage`: what one user uses of a broker, and its quotas.

Connections, subscriptions and durable subscriptions beyond a quota are refused. Publications beyond
a rate are delayed: each waits until the user's earlier ones are paid for, whatever connections they
came by. So a publisher that waits for its answers becomes slow, and none is refused unless it would
wait longer than `rate_wait_s`. One second's worth is free of waits.

    publication of 512   at 100 a second   ==>  published now, the next one 4.12 s later
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest
from math import ceil
from shlex import quote
from typing import Final, Protocol

from msgspec import structs

from contrada.delivery.delivery_messages import ReadLog
from contrada.delivery.delivery_server import DeliveryServer
from contrada.delivery.owned_logs import OwnedLogs
from contrada.delivery.retention import BYTES_MAX, Retention
from contrada.errors import FrameError, QuotaError
from contrada.service.durable_reader import IN_MEMORY
from contrada.service.security.principals import ANY_NAME, OVER_QUOTA, UNLIMITED, Principal, Quotas

BURST_S: Final = 1.0
"""Seconds of a rate that a user may publish at once. Beyond it: publications wait."""


USERS_KEPT_MIN: Final = 1_000
"""Users whose usage is remembered. Beyond it: those without connections and debts are forgotten."""


class CountedSession(Protocol):
    """A client session of a user."""

    @property
    def held_subscriptions(self) -> int:
        """The number of subscriptions, and of durable ones that are read."""
        ...


class UserUsage:
    """The sessions and the published amounts of one user."""

    def __init__(
        self, user: Principal, clock: Callable[[], float], wait_s_max: float, losses_per_s: int
    ) -> None:
        self.user = user
        self.losses = LossBudget(losses_per_s, clock)
        self.sessions: set[CountedSession] = set()
        self.unread: set[str] = set()
        """Subscriptions in memory that wait for their reader to connect again."""
        self._clock, self._wait_s_max = clock, wait_s_max
        self._free_s = 0.0
        """The time at which all publications so far are paid for."""
        self._second = 0
        self._now: Counter[str] = Counter()
        self._last: Counter[str] = Counter()

    @property
    def quotas(self) -> Quotas:
        """The user's present quotas."""
        return self.user.quotas

    @property
    def has_rate(self) -> bool:
        """Whether publications may have to wait."""
        quotas = self.quotas
        return quotas.notifications_per_s is not None or quotas.bytes_per_s is not None

    @property
    def debt_s(self) -> float:
        """Seconds until all publications so far are paid for."""
        return max(self._free_s - self._clock(), 0.0)

    def check_connection(self) -> None:
        """Raises FrameError where one more connection would be too many."""
        try:
            self._check("connections", len(self.sessions) + 1)
        except QuotaError as error:
            raise FrameError(OVER_QUOTA, error.reason) from None

    def check_subscription(self, name: str = "", count: int = 1) -> None:
        """Raises QuotaError where so many more subscriptions would be too many.

        `name` is that of a durable one, or of one in memory, which may be its own predecessor.
        """
        if self.quotas.subscriptions is not None:
            self._check("subscriptions", self._subscriptions() + count * (name not in self.unread))

    def _subscriptions(self) -> int:
        return sum(each.held_subscriptions for each in self.sessions) + len(self.unread)

    def charge(self, notifications: int, size: int) -> float:
        """Charges a publication; returns the seconds that it has to wait.

        Raises QuotaError where these are more than `rate_wait_s`: then it is not charged.
        """
        if not self.has_rate:
            return 0.0
        now_s = self._clock()
        amounts = {"notifications_per_s": notifications, "bytes_per_s": size}
        rates = {name: getattr(self.quotas, name) for name in amounts}
        costs_s = {name: amounts[name] / rate for name, rate in rates.items() if rate is not None}
        begin_s = max(self._free_s, now_s - BURST_S)
        wait_s = max(begin_s - now_s, 0.0)
        if wait_s > self._wait_s_max:
            reason = f"a publication would wait {wait_s:.1f} s, more than rate_wait_s"
            costliest = max(costs_s, key=costs_s.__getitem__)
            error = self._error(costliest, f"{reason} = {self._wait_s_max:g}")
            error.retry_in_s = ceil(wait_s - self._wait_s_max)
            raise error
        self._free_s = begin_s + max(costs_s.values())
        self._count(int(now_s), amounts)
        return wait_s

    def _count(self, second: int, amounts: Mapping[str, int]) -> None:
        if second != self._second:
            self._last = self._now if second == self._second + 1 else Counter()
            self._second, self._now = second, Counter()
        self._now.update(amounts)

    def admit_log(self, principal: Principal, server: DeliveryServer, request: ReadLog) -> ReadLog:
        """Returns a request for a durable subscription, with the room that the quotas leave.

        Without a retention a new subscription gets the rest of `kept_bytes`, at most BYTES_MAX; one
        in memory has a room of its own, its dead letters have not. Raises QuotaError. Cost: all
        subscriptions of the server.
        """
        room_max = self.quotas.kept_bytes
        if room_max is None and self.quotas.durable_subscriptions is None:
            return request
        logs, known = server.logs, server.find(request.name)
        terms = logs.terms(request.name)
        is_known = terms is not None and terms.is_durable == request.is_durable
        is_elsewhere = known is not None and known[0] != server.name
        if is_known or is_elsewhere or request.filters is None:
            return request  # It creates nothing.
        retention = request.retention or Retention()
        names = logs.names_to_create(request.name, retention, is_durable=request.is_durable)
        used, lasting = 0, len(names) - (not request.is_durable)
        if lasting:
            held, used = kept_by_user([principal], logs).get(self.user.name, (0, 0))
            self._check("durable_subscriptions", held + lasting)
            used += BYTES_MAX * (len(names) - 1)
        if room_max is None:
            return request
        if request.retention is None and (room := min(room_max - used, BYTES_MAX)) > 0:
            retention = Retention(bytes_max=room)
        self._check("kept_bytes", used + retention.bytes_max)
        return structs.replace(request, retention=retention)

    def _check(self, quota: str, wanted: int) -> None:
        most = getattr(self.quotas, quota)
        if most is not None and wanted > most:
            raise self._error(quota, f"this request makes it {wanted}")

    def _error(self, quota: str, why: str) -> QuotaError:
        name, group = self.user.name, self.user.quota_groups.get(quota, "")
        found = f"the quota {quota} of the user {name!r} is {getattr(self.quotas, quota)}"
        whose = f"{quote(group)} --group" if group else quote(name)
        command = f"contrada user quota {whose} --{quota.replace('_', '-')} N"
        remedy = f"the owner of the broker's file of users can change it: {command}"
        return QuotaError(f"{found}, and {why}; {remedy}")

    def used(self, kept: tuple[int, int]) -> dict[str, int]:
        """Returns the present use by quota. `kept` is as from `kept_by_user`."""
        self._count(int(self._clock()), {})
        rates = {name: self._last[name] for name in ("notifications_per_s", "bytes_per_s")}
        return {
            "connections": len(self.sessions),
            "subscriptions": self._subscriptions(),
            "durable_subscriptions": kept[0],
            "kept_bytes": kept[1],
            **rates,
        }


class UserUsages:
    """The usage of each user of a broker. A user in debt is remembered without a connection."""

    def __init__(self, clock: Callable[[], float], wait_s_max: float, losses_per_s: int) -> None:
        self._settings = clock, wait_s_max, losses_per_s
        self._by_name: dict[str, UserUsage] = {}
        self._kept_max = USERS_KEPT_MIN

    def of(self, principal: Principal) -> UserUsage:
        """Returns the usage of a user, with its present quotas."""
        found = self._by_name.get(principal.name)
        if found is None:
            self._forget_idle()
            found = UserUsage(principal, *self._settings)
            self._by_name[principal.name] = found
        found.user = principal
        return found

    def _forget_idle(self) -> None:
        """Forgets users without sessions and debts, where there are many."""
        if len(self._by_name) >= self._kept_max:
            self._by_name = {
                name: each
                for name, each in self._by_name.items()
                if each.sessions or each.unread or each.debt_s
            }
            self._kept_max = 2 * len(self._by_name) + USERS_KEPT_MIN

    def nearest(
        self, principals: Iterable[Principal], logs: OwnedLogs | None, count: int
    ) -> list[tuple[str, int, int]]:
        """Returns the quotas nearest to their limits: `user quota`, use and limit.

        Cost: the users with quotas, and all subscriptions of the server.
        """
        limited = [each for each in principals if each.quotas != UNLIMITED]
        kept = kept_by_user(limited, logs) if logs is not None else {}
        rows = (row for each in limited for row in self._rows(each, kept.get(each.name, (0, 0))))
        return nlargest(count, rows, key=lambda row: row[1] / row[2] if row[2] else 1.0)

    def _rows(self, user: Principal, kept: tuple[int, int]) -> Iterator[tuple[str, int, int]]:
        idle = UserUsage(user, *self._settings)
        used = self._by_name.get(user.name, idle).used(kept)
        for quota, most in user.quotas.limits().items():
            yield f"{user.name} {quota}", used[quota], most


def kept_by_user(principals: Iterable[Principal], logs: OwnedLogs) -> dict[str, tuple[int, int]]:
    """Returns the number and the bytes of the durable subscriptions of each user's own names.

    Cost: the users' names, and as many parts of the names of all subscriptions as those have.
    """
    owners: dict[str, list[str]] = {}
    for each in principals:
        for name in each.durable:
            owners.setdefault(name, []).append(each.name)
    parts_max = 1 + max((each.count("/") for each in owners), default=0)
    numbers: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for name in logs.names():
        terms = logs.terms(name)
        if terms is None or name.startswith(f"{IN_MEMORY}-"):
            continue
        parts = name.split("/", parts_max)[:parts_max]  # A name of a user may have a hundred.
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for user in {user for each in (ANY_NAME, *above) for user in owners.get(each, ())}:
            numbers[user] += 1
            sizes[user] += terms.retention.bytes_max
    return {user: (numbers[user], sizes[user]) for user in numbers}


LOSS_BURST_S: Final = 10.0
"""Seconds of `losses_per_s_max` that may be dropped at once. Beyond it: subscriptions are ended."""


class LossBudget:
    """A leaky bucket of the deliveries that the full queues of one user may drop.

    A dropped delivery costs a broker some microseconds for nobody. With thousands of subscriptions
    that a user does not read, each publication would cost milliseconds; so who lets a broker drop
    too many loses the full ones.
    """

    def __init__(self, per_s: int, clock: Callable[[], float]) -> None:
        """`per_s`: see `BrokerLimits.losses_per_s_max`."""
        self._per_s, self._clock = per_s, clock
        self._held, self._at_s = 0.0, clock()

    def charge(self) -> bool:
        """Charges a delivery that a full queue drops. Returns whether it was one too many."""
        now_s = self._clock()
        self._held = max(0.0, self._held - (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._held >= LOSS_BURST_S * self._per_s:
            return True
        self._held += 1
        return False
