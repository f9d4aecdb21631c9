"""`missing_attributes` and `nearest_records`: why records match no subscription.

Both look at the first records anew, so that matching itself counts nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from contrada.errors import ContradaError
from contrada.integrations.files.read_options import CONVERTERS
from contrada.integrations.files.record import Record
from contrada.integrations.files.record_matcher import RecordFilter
from contrada.integrations.files.time_formats import time_value
from contrada.model.algebra.match_explanation import (
    asked_domains,
    domain_nouns,
    explain_match,
    similar_names,
)
from contrada.model.algebra.notification import Notification
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains.values import (
    ABSENT_KEY,
    BOOL,
    NUMBER,
    TEXT,
    TIME,
    is_system_name,
    value_of,
)
from contrada.model.rule import Rule

RECORDS_EXPLAINED_MAX: Final = 1_000
"""Records that are looked at again where nothing matched. Beyond it: the others are not."""

EXPLAINED_MAX: Final = 20
"""Attributes, and subscriptions without a match, that are explained. Beyond it: the others are
not."""

_DECLARED: Final = {BOOL: "bool", NUMBER: "number", TIME: "time"}
"""The declared type of texts that are values of a domain."""

_COUNTED: Final = ("absent", "null", "truth value", "NaN", "number", "time", "text")


def missing_attributes(
    wanted: Iterable[RecordFilter], notifications: Sequence[Notification]
) -> list[str]:
    """Returns a sentence for each attribute in filters that no notification has, and for each one
    whose values are all, or in part texts, of other domains than the filters ask for.

    Cost: one look at each such attribute of each notification.
    """
    found: list[str] = []
    known = {name for each in notifications for name in each.attributes}
    for name, sets in sets_by_name(wanted).items():
        if len(found) == EXPLAINED_MAX:
            break
        if any(each.holds(ABSENT_KEY) for each in sets):
            continue
        keys = [key for each in notifications for key in each.keys_of(name)]
        counts = Counter(domain for domain, _ in keys)
        domains = sorted({domain for each in sets for domain in asked_domains(each)})
        if name not in known:
            near = " or ".join(map(repr, similar_names(name, known)))
            found.append(f"no record has {name!r}" + (f", there is {near}" if near else ""))
        elif TEXT not in domains and (counts[TEXT] or not any(counts[each] for each in domains)):
            counted = (
                f"{n} {_COUNTED[tag]}{'s' * (n > 1)}" for tag, n in sorted(counts.items()) if tag
            )
            expected = domain_nouns(domains)
            texts = [str(value_of(key)) for key in keys if key[0] == TEXT]
            hint = _hint(name, texts, domains, counts)
            found.append(f"{name}: {' and '.join(counted)}, expected {expected}{hint}")
    return found


def nearest_records(wanted: Mapping[str, RecordFilter], records: Sequence[Record]) -> Iterator[str]:
    """Yields for each of the subscriptions the explanation of the record with the fewest failing
    constraints. Cost: an explanation for each subscription and record.
    """
    for name, each in list(wanted.items())[:EXPLAINED_MAX]:
        filters = each.filters if isinstance(each, Rule) else each
        explained = ((explain_match(filters, it.notification), it) for it in records)
        found, record = min(
            explained, key=lambda pair: sum(not result.holds for result in pair[0].constraints)
        )
        residue = f"\n  fails: residue {each.residue}" if found and isinstance(each, Rule) else ""
        yield f"{name}: {record.source}:{record.number} {found}{residue}"


def sets_by_name(wanted: Iterable[RecordFilter]) -> dict[str, list[ValueSet]]:
    """Returns the sets of each attribute in filters, without the system's."""
    found: dict[str, list[ValueSet]] = {}
    for each in wanted:
        for member in (each.filters if isinstance(each, Rule) else each).filters:
            for name, value_set in member.sides.items():
                if not is_system_name(name):
                    found.setdefault(name, []).append(value_set)
    return found


def _hint(name: str, texts: Sequence[str], domains: Sequence[int], counts: Counter[int]) -> str:
    """Returns the option that reads values as of these domains, or an example of the texts."""
    kinds = [_DECLARED[each] for each in domains if each in _DECLARED]
    if not texts and counts[NUMBER] and "time" in kinds:
        return f"; --types {name}=epoch, epoch_ms or epoch_us reads numbers"
    if not texts or not kinds:
        return ""
    unread = {kind: [each for each in texts if not _is_of(kind, each)] for kind in kinds}
    kind = min(kinds, key=lambda each: len(unread[each]))
    if not (odd := unread[kind]):
        needs_zone = kind == "time" and not _is_of(kind, texts[0], None)
        zone = " --zone ZONE" if needs_zone else ""
        return f"; --types {name}={kind}{zone} reads texts such as {texts[0]!r}"
    if len(odd) < len(texts) or any(counts[each] for each in domains):
        return f"; texts such as {odd[0]!r} may mean no value: --absent {odd[0]}"
    if kind == "time":
        return f"; --types {name}=time:PATTERN reads texts such as {odd[0]!r}"
    return f"; one is {odd[0]!r}"


def _is_of(kind: str, text: str, zone: str | None = "UTC") -> bool:
    try:
        time_value(text, zone=zone) if kind == "time" else CONVERTERS[kind](text)
    except ContradaError:
        return False
    return True
