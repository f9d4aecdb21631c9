"""Views: the example of the thesis, their size, condensed tables, and valid lines."""

import dataclasses

import msgspec
import pytest

from contrada.gossip.addresses import AddressSpace, LogicalAddress, address_text, branch_of
from contrada.gossip.condensation import Accuracy, encode_interests
from contrada.gossip.gossip_messages import AgedLine, Contact, ViewLine
from contrada.gossip.parameters import Parameters
from contrada.gossip.views import DelegateChoice, View, ViewTable, condense_table, mark_of
from contrada.model import Filter, FilterSet, Notification

T = 1_700_000_000_000_000
SPACE = AddressSpace.of_hosts()
ME = (128, 178, 73, 3)

FIGURE: dict[int, list[tuple[int, str, str]]] = {
    4: [
        (3, "ACDE", "2.230.23 18.2.78 188.203.99"),
        (18, "BCEF", "12.2.183 12.34.24 180.37.217"),
        (128, "ABCDF", "3.2.230 18.120.2 56.12.234"),
    ],
    3: [
        (3, "ABC", "2.230 18.2 188.203"),
        (18, "BCD", "120.2 122.34 180.37"),
        (56, "CF", "12.234 18.220 173.3"),
        (178, "ABCF", "41.21 73.3 88.10"),
    ],
    2: [
        (41, "AC", "21 23 24"),
        (73, "ABCF", "3 17 19"),
        (88, "BF", "10 13 78"),
        (98, "ABC", "15 17 128"),
        (110, "C", "1 6 7"),
    ],
    1: [
        (3, "AC", ""),
        (17, "A", ""),
        (19, "CF", ""),
        (115, "F", ""),
        (116, "ABF", ""),
        (119, "BC", ""),
        (124, "AB", ""),
        (223, "B", ""),
    ],
}
"""Figure 6.5: for each level a line's digit, the types of interest, and the rest of R = 3
delegates' addresses."""


def types(names: str) -> FilterSet:
    """Returns the filters for these types."""
    return FilterSet([Filter({f"@is.{name}": True}) for name in names])


def contact(*address: int) -> Contact:
    return Contact(address, address_text(address))


def line(address: LogicalAddress, wants: FilterSet, count: int = 1, *others: Contact) -> ViewLine:
    return ViewLine(
        address[-1], T, encode_interests([wants]), count, others or (contact(*address),)
    )


def figure_view() -> View:
    """The view of 128.178.73.3 in figure 6.5."""
    view = View(SPACE, ME)
    for level, lines in FIGURE.items():
        branch = branch_of(ME, level)
        for digit, names, rests in lines:
            delegates = tuple(
                contact(*branch, digit, *map(int, rest.split("."))) for rest in rests.split()
            ) or (contact(*branch, digit),)
            one = ViewLine(digit, T, encode_interests([types(names)]), len(delegates), delegates)
            assert view.line_faults(level, one, 3) == ""
            view.table(level).put(one, 0)
    return view


def test_figure_6_5_is_a_view() -> None:
    """The thesis' own view could not be held, or would be taken for one of others."""
    view = figure_view()
    assert [len(table.known()) for table in view.tables] == [8, 15, 12, 9]
    wants = {
        level: [held.line.digit for held in view.table(level).live() if held.filters.matches(event)]
        for event in [Notification.with_marks({}, ["D"])]
        for level in (1, 2, 3, 4)
    }
    assert wants == {1: [], 2: [], 3: [18], 4: [3, 128]}


def test_figure_6_5_condenses_to_its_own_lines() -> None:
    """A condensed table would differ from the line in the thesis."""
    view = figure_view()
    for level in (1, 2, 3):
        what = condense_table(view.table(level), 3)
        above = view.table(level + 1).get(ME[-level - 1])
        assert above is not None
        assert what.delegates == above.line.delegates
        assert types("ABCF" if level < 3 else "ABCDF") == condensed_filters(what.interests)
        assert what.delegates[0].address[:-level] == branch_of(ME, level)


def condensed_filters(packed: bytes) -> FilterSet:
    view = View(AddressSpace((1,)), (0,))
    held = view.table(1).put(ViewLine(0, T, packed, 1, (contact(0),)), 0)
    return held.filters


@pytest.mark.parametrize(("levels", "branching", "redundancy"), [(1, 9, 3), (3, 4, 2), (4, 3, 3)])
def test_a_view_has_its_size(levels: int, branching: int, redundancy: int) -> None:
    """Equations 6.12 and 6.18 would not hold: m = R a (l - 1) + a; somebody would know more."""
    space = AddressSpace.regular(levels, branching)
    view = View(space, (0,) * levels)
    for level in range(1, levels + 1):
        for digit in range(branching):
            under = AddressSpace.regular(level - 1, branching) if level > 1 else None
            rests = [under.of_number(n) for n in range(redundancy)] if under else [()]
            branch = (*branch_of(view.address, level), digit)
            delegates = tuple(contact(*branch, *rest) for rest in rests)
            one = ViewLine(digit, T, encode_interests([]), len(delegates), delegates)
            view.table(level).put(one, 0)
    group = Parameters(levels=levels, branching=branching, redundancy=redundancy)
    assert sum(len(table.known()) for table in view.tables) == group.view_size
    assert [len(table.known()) for table in view.tables] == [
        group.members(level) for level in range(1, levels + 1)
    ]


def neighbours(*wants: str) -> ViewTable:
    table = ViewTable(1)
    for digit, text in enumerate(wants):
        table.put(line((5, digit), FilterSet(text)), 0)
    return table


def test_a_table_becomes_a_line() -> None:
    """Interests would be lost above, participants not counted, or other delegates chosen."""
    what = condense_table(neighbours("a < 5", "a = 3", "a > 4"), 2)
    assert condensed_filters(what.interests) == FilterSet("a < 5 or a > 4")
    assert what.count == 3
    assert what.delegates == (contact(5, 0), contact(5, 1))
    coarse = condense_table(neighbours("a < 5", "b = 3"), 2, Accuracy.TYPES)
    assert condensed_filters(coarse.interests) == FilterSet([Filter({})])


def test_delegates_may_be_the_most_interested() -> None:
    """Delegates would pass on more events that they do not want themselves than they must."""
    table = neighbours("a = 1", "b = 1", "a = 1 or b = 1 or c = 1", "d = 1")
    choose = DelegateChoice.INTEREST
    assert condense_table(table, 1, choice=choose).delegates == (contact(5, 2),)
    assert condense_table(table, 2, choice=choose).delegates == (contact(5, 2), contact(5, 3))
    assert condense_table(table, 3, choice=choose).delegates == (
        contact(5, 0),
        contact(5, 2),
        contact(5, 3),
    )


def test_silent_lines_and_empty_ones_are_not_live() -> None:
    """Departed participants would get gossip, and be counted."""
    table = neighbours("a = 1", "b = 1", "c = 1")
    held = table.get(1)
    assert held is not None
    version = table.version
    table.silence(held)
    table.put(ViewLine(2, T + 1, encode_interests([]), 0, ()), 0)
    assert [each.line.digit for each in table.live()] == [0]
    assert table.version == version + 2
    table.restamp(held, T + 2, 1)
    assert [each.line.digit for each in table.live()] == [0, 1]
    assert table.version == version + 3
    assert len(table) == 3


BRANCH = branch_of(ME, 2)
GOOD = ViewLine(
    41, T, encode_interests([types("A")]), 5, tuple(contact(*BRANCH, 41, n) for n in (1, 2, 3))
)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"digit": 256}, "digit"),
        ({"digit": 42}, "delegates"),
        ({"count": 257}, "count"),
        ({"count": 2}, "delegates"),
        ({"count": 0}, "delegates"),
        ({"count": 0, "delegates": ()}, ""),
        ({"delegates": GOOD.delegates[::-1]}, "delegates"),
        ({"delegates": (GOOD.delegates[0],) * 3}, "delegates"),
        ({"delegates": GOOD.delegates[:2]}, "delegates"),
        ({"delegates": (*GOOD.delegates, contact(*BRANCH, 41, 9))}, "delegates"),
        ({"delegates": (*GOOD.delegates[:2], contact(1, 178, 41, 9))}, "delegates"),
        ({"delegates": (*GOOD.delegates[:2], contact(*BRANCH, 41, 256))}, "delegates"),
        ({"delegates": (*GOOD.delegates[:2], contact(*BRANCH, 41))}, "delegates"),
    ],
    ids=str,
)
def test_validity_of_lines(changes: dict[str, object], fault: str) -> None:
    """A line could name delegates from elsewhere, or more than are, and draw gossip to them."""
    view = View(SPACE, ME)
    assert view.line_faults(2, msgspec.structs.replace(GOOD, **changes), 3) == fault


def test_a_mark_represents_the_content_of_a_line() -> None:
    """A changed line would not be sent, or an equal one would be."""
    again = msgspec.structs.replace(GOOD, timestamp_us=T + 9)
    assert mark_of(again) == mark_of(GOOD)
    others = [
        msgspec.structs.replace(GOOD, **change)
        for change in ({"digit": 1}, {"count": 6}, {"interests": b""}, {"delegates": ()})
    ]
    assert len({mark_of(each) for each in [GOOD, *others]}) == 5


def test_digests_tell_of_all_lines_of_the_levels_that_two_share() -> None:
    """A participant would learn of foreign subsystems, or not of common ones."""
    view = figure_view()
    view.round = 7
    assert {stamp.level for stamp in view.stamps(3)} == {3, 4}
    assert len(view.stamps(1)) == 20
    assert {stamp.age for stamp in view.stamps(1)} == {7}
    assert all(isinstance(told, AgedLine) for told in view.aged_lines(1))
    assert dataclasses.is_dataclass(view.table(1).known()[0])
