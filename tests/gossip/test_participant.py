"""Single participants: the lines of the figures, refusals, and harmless lies."""

import dataclasses
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidValueError
from contrada.gossip import event_dissemination
from contrada.gossip.addresses import AddressSpace, LogicalAddress, address_text
from contrada.gossip.condensation import encode_interests
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.gossip_messages import (
    AddInterest,
    AgedLine,
    AskJoin,
    AskWhole,
    Contact,
    Datagram,
    GiveEvent,
    Gossip,
    GossipEffect,
    GossipEvent,
    GossipMessage,
    Joined,
    JoinGroup,
    LeaveGroup,
    LineStamp,
    MessageReceived,
    Multicast,
    Redirect,
    RemoveInterest,
    Rumour,
    SendGossip,
    Tick,
    TurnAway,
    TurnedDown,
    Update,
    ViewLine,
    Welcome,
    encode_gossip,
)
from contrada.gossip.group_policy import GroupPolicy, silence_rounds
from contrada.gossip.hpmcast import Hpmcast, Pmcast, Rfpbcast
from contrada.gossip.line_exchange import fit_lines
from contrada.gossip.parameters import Parameters
from contrada.gossip.rounds import ROUNDS_MAX
from contrada.model import Envelope, FilterSet, Notification
from contrada.routing.duplicates import Duplicates
from contrada.routing.router_limits import RouterLimits
from tests.strategies import more

T = 1_700_000_000_000_000
WANTS, OTHER = FilterSet("a = 1"), FilterSet("a = 2")


def event(number: int = 1, **envelope: Any) -> Notification:
    """Something that `WANTS` matches."""
    return Notification(
        {"a": 1, "b": 7}, envelope=Envelope(id=f"{number}", publisher="p", **envelope)
    )


def contact(*address: int) -> Contact:
    return Contact(address, address_text(address))


def neighbour_line(address: LogicalAddress, wants: FilterSet, stamp: int = T) -> AgedLine:
    line = ViewLine(address[-1], stamp, encode_interests([wants]), 1, (contact(*address),))
    return AgedLine(1, 0, line)


def alone(
    wanted: Sequence[FilterSet] = (WANTS, OTHER, WANTS, OTHER, OTHER),
    protocol: type[Hpmcast] = Pmcast,
    conduct: GroupPolicy = GroupPolicy(is_static=True),  # noqa: B008
    at: int = 0,
    limits: GossipLimits = GossipLimits(),
    **parameters: Any,
) -> Hpmcast:
    """Returns one participant of a lowest group of interested participants."""
    plain = Parameters(levels=1, branching=8, redundancy=1, fanout=3, rounds=2, digest=0)
    group = dataclasses.replace(plain, **parameters)
    made = protocol(contact(at), AddressSpace((8,)), group, random.Random(1), conduct, limits)
    made.handle(AddInterest("mine", wanted[at]), T)
    made.membership.settle(neighbour_line((n,), wants) for n, wants in enumerate(wanted))
    return made


def sent(effects: Sequence[GossipEffect]) -> list[tuple[str, Rumour]]:
    return [
        (effect.place, rumour)
        for effect in effects
        if isinstance(effect, SendGossip) and isinstance(effect.message, Gossip)
        for rumour in effect.message.rumours
    ]


def rumour(number: int = 1, round_: int = 0, level: int = 1) -> Rumour:
    return Rumour(event(number), 0.4, round_, level)


def heard(place: int, message: GossipMessage) -> MessageReceived:
    return MessageReceived(f"{place}", message)


# --- the figures --------------------------------------------------------------------------------


def test_rfpbcast_is_figure_6_1() -> None:
    """It would check interest before it sends, or have other rounds than T."""
    one = alone(protocol=Rfpbcast)
    assert one.handle(Multicast(event()), T) == [GiveEvent(event())]
    rounds = [sent(one.handle(Tick(), T)) for _ in range(4)]
    assert [len(each) for each in rounds] == [3, 3, 0, 0]
    assert [[rumour.round for _, rumour in each] for each in rounds[:2]] == [[1] * 3, [2] * 3]
    assert all(len({place for place, _ in each}) == 3 for each in rounds[:2])
    assert "0" not in {place for each in rounds for place, _ in each}
    assert {place for each in rounds for place, _ in each} - {"2"}


def test_pmcast_is_figure_6_2() -> None:
    """Uninterested participants would get events, or others would be drawn in their place."""
    one = alone()
    one.handle(Multicast(event()), T)
    places = [place for _ in range(2) for place, _ in sent(one.handle(Tick(), T))]
    assert set(places) <= {"2"}
    assert places
    many = alone([WANTS] * 4, fanout=9)
    many.handle(Multicast(event()), T)
    assert sorted(place for place, _ in sent(many.handle(Tick(), T))) == ["1", "2", "3"]


def test_received_events_are_gossiped_from_their_round_on() -> None:
    """An event would be gossiped for more rounds the more participants it has passed."""
    one = alone()
    effects = one.handle(heard(3, Gossip(contact(3), (rumour(round_=1),))), T)
    assert effects == [GiveEvent(event())]
    assert {each.round for _, each in sent(one.handle(Tick(), T))} <= {2}
    assert sent(one.handle(Tick(), T)) == []
    assert one.statistics().buffered == 0


def test_an_event_is_given_once_also_when_it_was_dropped() -> None:
    """A late copy would begin everything anew: figure 6.6 only looks into its buffers."""
    one = alone()
    again = heard(3, Gossip(contact(3), (rumour(),)))
    assert one.handle(again, T) == [GiveEvent(event())]
    assert one.handle(again, T) == []
    for _ in range(5):
        one.handle(Tick(), T)
    assert one.statistics().buffered == 0
    assert one.handle(again, T) == []
    assert one.statistics().duplicates == 2
    assert one.statistics().delivered == 1


def test_an_uninterested_participant_only_forwards() -> None:
    """A user would get unwanted events, or a delegate would not forward."""
    one = alone([OTHER, WANTS, WANTS])
    assert one.handle(heard(1, Gossip(contact(1), (rumour(),))), T) == []
    assert sent(one.handle(Tick(), T))
    assert (one.statistics().delivered, one.statistics().forwarded) == (0, 1)


def hierarchical(limits: GossipLimits = GossipLimits(), **conduct: Any) -> Hpmcast:
    """0.0 of 2 subsystems with 3 participants each, of which R = 2 are delegates."""
    group = Parameters(levels=2, branching=3, redundancy=2, fanout=2)
    space = AddressSpace.regular(2, 3)
    one = Hpmcast(
        contact(0, 0),
        space,
        group,
        random.Random(2),
        GroupPolicy(**{"is_static": True, **conduct}),
        limits,
    )
    one.handle(AddInterest("mine", WANTS), T)
    lines = [neighbour_line((0, n), WANTS) for n in range(3)]
    for digit, wants in ((0, WANTS), (1, OTHER), (2, WANTS)):
        delegates = (contact(digit, 0), contact(digit, 1))
        line = ViewLine(digit, T, encode_interests([wants]), 3, delegates)
        lines.append(AgedLine(2, 0, line))
    one.membership.settle(lines)
    return one


def test_hpmcast_is_figure_6_6() -> None:
    """It would not begin at the top, not descend, or send to an uninterested subsystem."""
    one = hierarchical()
    assert one.handle(Multicast(event()), T) == [GiveEvent(event())]
    rounds = [sent(one.handle(Tick(), T)) for _ in range(20)]
    levels = [{each.level for _, each in round_} for round_ in rounds]
    flat = [level for each in levels for level in each]
    assert flat == sorted(flat, reverse=True)
    assert set(flat) == {2, 1}
    top = {place for round_ in rounds for place, each in round_ if each.level == 2}
    assert top <= {"0.1", "2.0", "2.1"}
    assert {place for round_ in rounds for place, each in round_ if each.level == 1} <= {
        "0.1",
        "0.2",
    }
    assert {each.prob for round_ in rounds for _, each in round_} == {4 / 6, 1.0}
    assert one.statistics().buffered == 0


def test_events_received_at_a_level_descend_from_there() -> None:
    """A delegate would not forward an event to its subsystem, or send it up."""
    one = hierarchical()
    top = Rumour(event(), 4 / 6, 0, 2)
    one.handle(MessageReceived("2.0", Gossip(contact(2, 0), (top,))), T)
    assert {each.level for _ in range(20) for _, each in sent(one.handle(Tick(), T))} == {2, 1}
    low = Rumour(event(2), 1.0, 0, 1)
    one.handle(MessageReceived("0.1", Gossip(contact(0, 1), (low,))), T)
    assert {each.level for _ in range(20) for _, each in sent(one.handle(Tick(), T))} == {1}


def test_the_top_is_skipped_where_only_one_subsystem_is_interested() -> None:
    """Delegates would be loaded with events of the publisher's subsystem only, or miss others."""
    own = Notification({"a": 3}, envelope=Envelope(id="1", publisher="p"))
    line = ViewLine(
        0, T + 1, encode_interests([FilterSet("a = 3")]), 3, (contact(0, 0), contact(0, 1))
    )
    for skips in (True, False):
        one = hierarchical(skips_first=skips)
        one.membership.settle([AgedLine(2, 0, line)])
        one.membership.settle(neighbour_line((0, n), FilterSet("a = 3"), T + 1) for n in (1, 2))
        one.handle(Multicast(own), T)
        first = {each.level for _, each in sent(one.handle(Tick(), T))}
        assert first == ({1} if skips else {2}) or (not skips and not first)


def test_the_first_d_count_as_interested_in_a_small_audience() -> None:
    """A small audience would get as few rounds as the asymptote has for it, or nobody more."""
    wanted = [OTHER, OTHER, OTHER, OTHER, WANTS]
    tuned = alone(wanted, protocol=Pmcast, audience=3, fanout=4)
    tuned.handle(Multicast(event()), T)
    places = sorted(place for place, _ in sent(tuned.handle(Tick(), T)))
    assert places == ["1", "2", "4"]
    nobody = alone([OTHER] * 5, audience=3, fanout=4)
    nobody.handle(Multicast(event()), T)
    assert sent(nobody.handle(Tick(), T)) == []


def test_a_broadcast_considers_no_interests() -> None:
    """A broadcast would be limited to interested participants."""
    one = alone([OTHER] * 5, conduct=GroupPolicy(is_static=True, broadcasts=True))
    one.handle(Multicast(event()), T)
    assert len(sent(one.handle(Tick(), T))) == 3


def test_a_flooded_bottom_is_announced_once_by_the_first_receiver() -> None:
    """Neighbours would also gossip, or each would flood the others again."""
    one = alone([WANTS] * 6 + [OTHER], conduct=GroupPolicy(is_static=True, floods_bottom=True))
    one.handle(Multicast(event()), T)
    assert [place for place, _ in sent(one.handle(Tick(), T))] == ["1", "2", "3", "4", "5"]
    assert sent(one.handle(Tick(), T)) == []
    remove = heard(3, Gossip(contact(3), (rumour(2),)))
    assert one.handle(remove, T) == [GiveEvent(event(2))]
    assert sent(one.handle(Tick(), T)) == []


@pytest.mark.parametrize("protocol", [Pmcast, Rfpbcast])
def test_without_a_hierarchy_there_is_one_level(protocol: type[Hpmcast]) -> None:
    """A protocol in which all know all would be run where they do not."""
    with pytest.raises(InvalidValueError):
        protocol(
            contact(0, 0), AddressSpace((3, 3)), Parameters(levels=2, branching=3), random.Random()
        )
    with pytest.raises(InvalidValueError):
        Hpmcast(contact(0, 0), AddressSpace((3, 3)), Parameters(), random.Random())
    with pytest.raises(InvalidValueError):
        Hpmcast(
            contact(0, 3), AddressSpace((3, 3)), Parameters(levels=2, branching=3), random.Random()
        )


# --- refused messages ---------------------------------------------------------------------------


def refused(one: Hpmcast, reason: str) -> int:
    one.validate()
    return one.statistics().refused.get(reason, 0)


@pytest.mark.parametrize(
    ("message", "place", "reason"),
    [
        (Gossip(contact(9), (rumour(),)), "9", "sender"),
        (Gossip(contact(1, 1), (rumour(),)), "1.1", "sender"),
        (Gossip(contact(1), (rumour(),)), "2", "sender"),
        (Gossip(contact(0), (rumour(),)), "0", "sender"),
        (Gossip(contact(1), (rumour(level=2),)), "1", "level"),
        (Gossip(contact(1), (Rumour(Notification({}), 1.0, 0, 1),)), "1", "no identity"),
        (Gossip(contact(1), (Rumour(event(time_us=T - 9, ttl_us=9), 1.0, 0, 1),)), "1", "expired"),
        (Gossip(contact(1), (), (LineStamp(2, 0, T, 1, 0),)), "1", "level"),
        (Gossip(contact(1), (), (LineStamp(1, 8, T, 1, 0),)), "1", "level"),
        (Update(contact(1), (AgedLine(1, 0, neighbour_line((9,), WANTS).line),)), "1", "level"),
        (Update(contact(1), (neighbour_line((1,), WANTS, T + 61_000_000),)), "1", "clock"),
        (
            Update(contact(1), (AgedLine(1, 0, ViewLine(1, T + 1, b"\xc1", 1, (contact(1),))),)),
            "1",
            "interests",
        ),
        (
            Update(contact(1), (AgedLine(1, 0, ViewLine(1, T + 1, b"", 1, (contact(2),))),)),
            "1",
            "delegates",
        ),
        (AskJoin(contact(0), neighbour_line((0,), WANTS).line), "0", "address taken"),
        (AskJoin(contact(7), neighbour_line((6,), WANTS).line), "7", "line of another"),
        (AskWhole(contact(1), ((1, "p", "9"),)), "1", "no such event"),
        (Redirect(contact(1), (contact(2),)), "1", "redirect"),
        (Welcome(contact(1), ()), "1", "welcome"),
        (TurnAway(contact(1), "no"), "1", "turn away"),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, str) else each,
)
def test_invalid_messages_are_refused_and_counted(
    message: GossipMessage, place: str, reason: str
) -> None:
    """A lying or foreign message would change a view, or raise; or would not be counted."""
    one = alone()
    before = [held.line for held in one.membership.view.table(1)]
    effects = one.handle(MessageReceived(place, message), T)
    assert refused(one, reason) == 1
    assert [held.line for held in one.membership.view.table(1)] == before
    assert not any(isinstance(effect, GiveEvent) for effect in effects)
    assert one.handle(Datagram(place, encode_gossip(message)), T) == effects
    assert refused(one, reason) == 2


def test_invalid_interests_are_refused() -> None:
    """The user would not learn that a request was refused."""
    one = alone()
    unknown = FilterSet([])
    cases: list[tuple[GossipEvent, str]] = [
        (Multicast(Notification({"a": 1})), "no identity"),
        (Multicast(Notification({}, body=bytes(600_000), envelope=event().envelope)), "too large"),
        (RemoveInterest("none"), "unknown identity"),
        (JoinGroup(()), "in a group already"),
    ]
    for wish, reason in cases:
        assert one.handle(wish, T) == [TurnedDown(wish, reason)]
    one.handle(AddInterest("x", unknown), T)
    assert one.handle(RemoveInterest("x"), T) == []
    one.handle(Multicast(event()), T)
    assert one.handle(Multicast(event()), T) == [TurnedDown(Multicast(event()), "published before")]
    one.handle(LeaveGroup(), T)
    assert one.handle(Multicast(event(2)), T)[0] == TurnedDown(
        Multicast(event(2)), "not in a group"
    )


def test_lines_about_oneself_are_accepted_from_nobody() -> None:
    """A neighbour could have one forgotten, or take one's interests away."""
    one = alone(conduct=GroupPolicy())
    lie = ViewLine(0, T + 5, encode_interests([]), 0, ())
    one.handle(heard(1, Update(contact(1), (AgedLine(1, 0, lie),))), T)
    held = one.membership.view.table(1).get(0)
    assert held is not None
    assert held.line == replace_line(held.line, T + 6)
    assert held.line.count == 1
    answer = one.handle(heard(1, Gossip(contact(1), (), (LineStamp(1, 0, T + 5, 1, 0),))), T)
    assert answer == [SendGossip("1", answer_of(answer))]
    assert held.line in [told.line for told in answer_of(answer).lines]


def replace_line(line: ViewLine, stamp: int) -> ViewLine:
    return msgspec.structs.replace(line, timestamp_us=stamp)


def answer_of(effects: Sequence[GossipEffect]) -> Update:
    (effect,) = effects
    assert isinstance(effect, SendGossip)
    assert isinstance(effect.message, Update)
    return effect.message


def test_digests_are_answered_with_newer_lines_and_requests_for_older_ones() -> None:
    """Views would not converge: gossip pull, both ways."""
    one = alone()
    stamps = one.membership.view.stamps(1)
    older = msgspec.structs.replace(stamps[2], timestamp_us=T - 1, mark=7)
    newer = msgspec.structs.replace(stamps[3], timestamp_us=T + 1, mark=7)
    later = msgspec.structs.replace(stamps[4], timestamp_us=T + 1)
    digest = (stamps[0], stamps[1], older, newer, later)
    update = answer_of(one.handle(heard(1, Gossip(contact(1), (), digest)), T))
    assert [told.line.digit for told in update.lines] == [2]
    assert update.wanted == ((1, 3),)
    held = one.membership.view.table(1).get(4)
    assert held is not None
    assert held.line.timestamp_us == T + 1
    wanted = Update(contact(1), (), (), ((1, 2),))
    assert [told.line.digit for told in answer_of(one.handle(heard(1, wanted), T)).lines] == [2]
    assert one.handle(heard(1, Gossip(contact(1), (), one.membership.view.stamps(1))), T) == []


def test_a_line_that_is_old_already_is_not_taken() -> None:
    """A crashed participant would live on in circulating lines, each time as if new."""
    one = alone([WANTS, OTHER])
    for age, is_taken in ((silence_rounds(one.parameters, 1), False), (0, True)):
        told = AgedLine(1, age, neighbour_line((5,), WANTS).line)
        one.handle(heard(1, Update(contact(1), (told,))), T)
        assert (one.membership.view.table(1).get(5) is not None) == is_taken


def test_another_writer_of_ones_subsystem_is_contacted() -> None:
    """Two simultaneous first participants of a subsystem would write its line in turn, and never
    meet.
    """
    one = hierarchical(is_static=False)
    one.handle(Tick(), T + 1_000)
    held = one.membership.view.table(2).get(0)
    assert held is not None
    for stamp in (T + 10, T + 20):  # later than its first stamp, and earlier than now
        one.membership.view.table(2).restamp(held, stamp + 5, 1)
        digest = (LineStamp(2, 0, stamp, 77, 0),)
        asked = answer_of(
            one.handle(MessageReceived("2.0", Gossip(contact(2, 0), (), digest)), T + 2_000)
        )
        assert (2, 0) in asked.wanted
    stranger = ViewLine(0, T + 20, encode_interests([WANTS]), 1, (contact(0, 2),))
    one.membership.view.table(1).silence(one.membership.view.table(1).live()[2])
    one.handle(
        MessageReceived("2.0", Update(contact(2, 0), (AgedLine(2, 0, stranger),))), T + 2_000
    )
    met = [each for each in one.handle(Tick(), T + 3_000) if isinstance(each, SendGossip)]
    assert "0.2" in {each.place for each in met}


def test_leaving_informs_neighbours() -> None:
    """It would be taken for one that crashed, which takes longer to be found out."""
    one, other = alone([WANTS] * 8), alone([WANTS] * 8, at=1)
    effects = [each for each in one.handle(LeaveGroup(), T) if isinstance(each, SendGossip)]
    assert len({each.place for each in effects}) == 1 + 3
    other.handle(MessageReceived("0", effects[0].message), T)
    assert [held.line.digit for held in other.membership.view.table(1).live()] == [*range(1, 8)]
    last = hierarchical()
    for digit in (1, 2):
        last.membership.view.table(1).silence(last.membership.view.table(1).live()[-1])
        assert len(last.membership.view.table(1).live()) == 3 - digit
    told = [each.message for each in last.handle(LeaveGroup(), T) if isinstance(each, SendGossip)]
    assert told
    assert isinstance(told[0], Update)
    assert [(each.level, each.line.digit, each.line.count) for each in told[0].lines] == [
        (1, 0, 0),
        (2, 0, 0),
    ]


def test_a_fetched_event_continues_at_its_announced_level() -> None:
    """A delegate that asks late would gossip an event by the rounds of another level."""
    one = hierarchical(announces=True)
    one.handle(Multicast(event()), T)
    first = [each for _, each in sent(one.handle(Tick(), T))]
    assert all(each.names == ("a",) and not each.event.body for each in first)
    ask = MessageReceived("2.0", AskWhole(contact(2, 0), ((2, "p", "1"),)))
    ((_, now),) = sent(one.handle(ask, T))
    assert (now.event, now.level, now.round, now.names) == (event(), 2, 1, None)
    while {each.level for _, each in sent(one.handle(Tick(), T))} != {1}:
        assert one.statistics().buffered == 1
    ((_, late),) = sent(one.handle(ask, T))
    assert (late.event, late.level, late.round) == (event(), 2, ROUNDS_MAX)


def test_digests_ride_on_events() -> None:
    """A second message would be sent where one is enough."""
    one = alone([WANTS] * 3, conduct=GroupPolicy(), fanout=2)
    one.handle(Multicast(event()), T)
    effects = one.handle(Tick(), T)
    gossips = [each.message for each in effects if isinstance(each, SendGossip)]
    assert len({each.place for each in effects if isinstance(each, SendGossip)}) == len(gossips)
    assert any(each.rumours and each.digest for each in gossips if isinstance(each, Gossip))


@more(0.6)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(content: bytes) -> None:
    """Bytes that anybody sent would raise."""
    one = alone()
    assert one.handle(Datagram("1", content), T) == []
    assert refused(one, "not a message") == 1


@more(1.5)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_messages_that_are_nearly_right_do_no_harm(seed: int, changes: int) -> None:
    """A message with a few changed bytes would break another view, or raise."""
    rng = random.Random(seed)
    one, other = hierarchical(), hierarchical()
    other.membership.contact = contact(0, 1)
    other.handle(Multicast(event(seed)), T)
    lines = tuple(other.membership.view.aged_lines(1))
    said = [each.message for each in other.handle(Tick(), T) if isinstance(each, SendGossip)]
    said += [Update(contact(0, 1), lines, other.membership.view.stamps(1), ((1, 1),))]
    for message in said:
        content = bytearray(encode_gossip(message))
        for _ in range(changes):
            content[rng.randrange(len(content))] = rng.randrange(256)
        one.handle(Datagram("0.1", bytes(content)), T)
        one.validate()
    one.handle(Tick(), T)
    one.validate()


def test_conduct_is_a_value() -> None:
    """Two participants could differ in a policy that all must share."""
    assert dataclasses.replace(GroupPolicy(), broadcasts=True) != GroupPolicy()


# --- bounds -------------------------------------------------------------------------------------


def test_an_event_requested_twice_is_sent_once() -> None:
    """A short message could draw hundreds of times an event to a place."""
    one = alone()
    one.handle(Multicast(event()), T)
    ask = AskWhole(contact(1), ((1, "p", "1"),) * 200 + ((2, "p", "1"),))
    assert len(sent(one.handle(heard(1, ask), T))) == 1


def test_a_publisher_is_informed_of_a_full_buffer() -> None:
    """An event would be accepted and lost; or could not be published again later."""
    one = alone(limits=GossipLimits(rumours_max=1))
    assert one.handle(Multicast(event()), T) == [GiveEvent(event())]
    assert one.handle(Multicast(event(2)), T) == [TurnedDown(Multicast(event(2)), "buffers full")]
    for _ in range(5):
        one.handle(Tick(), T)
    assert one.handle(Multicast(event(2)), T) == [GiveEvent(event(2))]


def test_an_event_in_transit_is_known_longer_than_identities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a flood its copy would be delivered again, and its bytes would never be freed."""
    limits = RouterLimits(remembered_max=1)
    monkeypatch.setattr(event_dissemination, "Duplicates", partial(Duplicates, limits))
    one = alone()
    for number in (1, 2, 3, 4):
        one.handle(heard(3, Gossip(contact(3), (rumour(number),))), T)
    assert one.handle(heard(3, Gossip(contact(3), (rumour(1),))), T) == []
    again = Multicast(event(2))
    assert one.handle(again, T) == [TurnedDown(again, "published before")]
    one.validate()


def test_beyond_the_unacknowledged_limit_the_top_gossips() -> None:
    """Events would not be sent at the top while many are in transit."""
    one = hierarchical(GossipLimits(unacknowledged_max=1), reliable_top=True)
    for number in (1, 2):
        one.handle(Multicast(event(number)), T)
    told = [each for _ in range(4) for _, each in sent(one.handle(Tick(), T)) if each.level == 2]
    asked = {each.event.envelope.id for each in told if each.acknowledge}
    assert asked == {"1"}
    assert {each.event.envelope.id for each in told if not each.acknowledge} == {"2"}


def test_nobody_is_made_to_know_more_than_its_view() -> None:
    """Invented lines could fill the memory of a participant: R a (l - 1) + a is the bound."""
    group = Parameters(levels=3, branching=6, redundancy=2)
    space = AddressSpace.regular(3, 6)
    one = Hpmcast(contact(0, 0, 0), space, group, random.Random(1), GroupPolicy())
    one.handle(JoinGroup(()), T)
    rng = random.Random(2)
    for number in range(3_000):
        level, digit = rng.randrange(1, 4), rng.randrange(8)
        rests = sorted(space.of_number(rng.randrange(216)) for _ in range(rng.randrange(4)))
        branch = (0,) * (3 - level)
        those = [(*branch, digit, *rest[4 - level :]) for rest in rests]
        delegates = tuple(Contact(each, f"{rng.random()}") for each in those)
        count = rng.choice((len(delegates), 36, 2**62))
        line = ViewLine(digit, T + number, encode_interests([]), count, delegates)
        liar = Contact((0, 0, rng.randrange(1, 6)), "liar")
        one.handle(MessageReceived("liar", Update(liar, (AgedLine(level, 0, line),))), T)
        if not number % 100:
            one.handle(Tick(), T)
            one.validate()
    assert 10 < one.statistics().known < group.view_size


def test_many_interests_are_condensed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of subscriptions would cost the square of their number before the next round."""
    calls: list[int] = []

    def counted(filters: Sequence[FilterSet]) -> bytes:
        calls.append(len(filters))
        return encode_interests(filters)

    monkeypatch.setattr("contrada.gossip.membership.encode_interests", counted)
    one = alone(conduct=GroupPolicy())
    for number in range(50):
        one.handle(AddInterest(f"{number}", FilterSet(f"a = {number}")), T)
    one.handle(Tick(), T)
    assert calls == [51]


def test_after_leaving_nobody_is_known() -> None:
    """The founder of a group would gossip on to members of the group that it left."""
    one = alone([WANTS] * 5, conduct=GroupPolicy())
    one.handle(LeaveGroup(), T + 9)
    assert one.handle(JoinGroup(()), T) == [Joined()]
    one.validate()
    assert one.statistics().known == 0
    held = one.membership.view.table(1).get(0)
    assert held is not None
    assert held.line.timestamp_us > T + 9, "later than that one is gone"


def test_leaving_during_joining_ends_in_no_group() -> None:
    """A late welcome would bring it in again, against its user's will."""
    group = Parameters(levels=1, branching=8, redundancy=1)
    one = Pmcast(contact(0), AddressSpace((8,)), group, random.Random(1), GroupPolicy())
    assert one.handle(JoinGroup(("1",)), T)
    assert one.handle(LeaveGroup(), T) == []
    welcome = Welcome(contact(1), (neighbour_line((1,), WANTS),))
    assert one.handle(heard(1, welcome), T) == []
    assert refused(one, "welcome") == 1
    assert all(one.handle(Tick(), T) == [] for _ in range(9))


def test_an_event_of_many_attributes_is_announced_whole() -> None:
    """The names of the attributes that filters ask about could make a message too large."""
    one = hierarchical(GossipLimits(announced_names_max=0), announces=True)
    one.handle(Multicast(event()), T)
    told = [each for _, each in sent(one.handle(Tick(), T))]
    assert told
    assert all(each.names is None and each.event == event() for each in told)


def test_lines_of_one_message_fit_into_it() -> None:
    """An update would be larger than a message can be, and never be sent."""
    place = "x" * 255
    contacts = tuple(Contact((0, n), place) for n in range(40))
    line = ViewLine(0, T, encode_interests([]), 40, contacts)
    lines = fit_lines([AgedLine(2, 0, line)] * 4_096)
    assert len(lines) > 10
    assert len(encode_gossip(Update(contacts[0], lines))) < 600_000
