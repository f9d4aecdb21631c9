"""`group_view`: a group that gossips, as one of its participants knows it.

A participant knows its neighbours, and of the subsystems above these the numbers of participants,
the delegates and the condensed filters. The rest of the hierarchy is in no process, so no page can
show it.

Source: EPFL 2503 §6.4.1, §6.4.2, figure 6.5.
"""

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from contrada.errors import shortened
from contrada.gossip.addresses import address_text, branch_of
from contrada.gossip.condensation import read_interests
from contrada.gossip.views import HeldLine, View, ViewTable

if TYPE_CHECKING:
    from contrada.gossip.udp.gossip_node import GossipNode  # An extra has its libraries.

GROUP_LINES_MAX: Final = 64
"""Lines of a level of a group in the console. Beyond it: the first ones, by their digits, and the
own one are shown, with the number of all."""

LINE_FILTERS_MAX: Final = 3
"""Filters of such a line. Beyond it: the first ones are shown, with the number of all."""

_FILTER_CHARACTERS: Final = 200
_LINE_TEXTS: Final = 4_096


def group_view(node: "GossipNode") -> dict[str, Any]:
    """Returns the view and the counts of a participant as an object of JSON.

    Cost: the whole view; the texts of filters are made once.
    """
    counts, view, known = node.statistics(), node.participant.membership.view, node.group.parameters
    levels = [_level(view, table) for table in reversed(view.tables)]
    return {
        "place": counts.place,
        "address": address_text(counts.address),
        "protocol": node.group.protocol,
        "period_us": known.period_us,
        "parameters": {
            "l": known.levels,
            "a": known.branching,
            "R": known.redundancy,
            "F": known.fanout,
        },
        "participants": sum(held.line.count for held in view.tables[-1].live()),
        "known": counts.participant.known,
        "view_size": known.view_size,
        "levels": levels,
        "now_us": node.now_us(),
        "counts": {
            "round": counts.participant.round,
            "published": counts.published,
            "delivered": counts.participant.delivered,
            "forwarded": counts.participant.forwarded,
            "duplicates": counts.participant.duplicates,
            "datagrams_sent": counts.sent,
            "bytes_sent": counts.sent_bytes,
            "datagrams_received": counts.received,
            "bytes_received": counts.received_bytes,
        },
        "buffered": counts.participant.buffered,
        "messages": counts.participant.sent,
        "refused": counts.refused,
        "dropped": counts.dropped,
    }


def _level(view: View, table: ViewTable) -> dict[str, Any]:
    level, every = table.level, sorted(table, key=lambda held: held.line.digit)
    own = [held for held in every if view.is_own(level, held.line.digit)]
    shown = every[:GROUP_LINES_MAX]
    shown += [held for held in own if held not in shown]
    return {
        "level": level,
        "branch": address_text(branch_of(view.address, level)),
        "lines": [_line(view, level, held) for held in shown],
        "count": len(every),
    }


def _line(view: View, level: int, held: HeldLine) -> dict[str, Any]:
    line = held.line
    return {
        "address": address_text((*branch_of(view.address, level), line.digit)),
        "is_own": view.is_own(level, line.digit),
        "is_silent": held.is_silent,
        "count": line.count,
        "age": view.round - held.since,
        "delegates": [
            {"address": address_text(it.address), "place": it.place} for it in line.delegates
        ],
        "filters": _filters(line.interests),
    }


@lru_cache(_LINE_TEXTS)
def _filters(interests: bytes) -> str:
    every = read_interests(interests).filters
    texts = [shortened(str(each), _FILTER_CHARACTERS) for each in islice(every, LINE_FILTERS_MAX)]
    more = len(every) - len(texts)
    return " or ".join(texts) + (f", and {more} more" if more else "")
