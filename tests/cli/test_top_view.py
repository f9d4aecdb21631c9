"""The view of `contrada top`: order, names, the chosen broker, and the keys for them."""

import io
from typing import Any

from rich.console import Console

from contrada.cli.top_view import CLOSED, ORDERS, TopView


def picture(address: str, published: float, *links: tuple[str, int]) -> dict[str, Any]:
    """A broker with links and their queues."""
    return {
        "address": address,
        "published_per_s": published,
        "matched_per_s": 0.0,
        "dropped_per_s": {"queue full": 1.5},
        **dict.fromkeys(("connections", "links", "subscriptions", "held_bytes"), 1),
        "link_waiting": dict(links),
        "link_sent_per_s": dict.fromkeys((name for name, _ in links), 2.0),
        "subscription_waiting": {},
        "subscription_dropped_per_s": {},
        "queue_unread": {"orders": 7},
        **{f"queue_{name}": {"orders": 1} for name in ("handed", "readers", "dead")},
        "queue_oldest_us": {"orders": 0},
    }


PICTURES = [
    picture("oslo", 10.0, ("riga", 5), ("bern", 9)),
    {"address": "cork", "error": "no answer"},
    picture("riga", 2_000.0, ("oslo", 7)),
]


def pressed(keys: str) -> TopView:
    """Returns the view after some keys."""
    view = TopView([each["address"] for each in PICTURES])
    for key in keys:
        view.press(key)
    return view


def shown(view: TopView) -> str:
    """Returns the text on a terminal."""
    console = Console(file=io.StringIO(), width=200)
    console.print(view.screen(PICTURES))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def names(keys: str) -> list[str]:
    """Returns the first column of all rows after some keys, without headings."""
    lines = (
        line.strip("│┃ ").split("│")[0].split("┃")[0].strip()
        for line in shown(pressed(keys)).splitlines()[2:]
        if line[:1] in "│"
    )
    return [each for each in lines if each]


def test_all_brokers_are_shown_as_given() -> None:
    """A broker, or the one without an answer, would be missing."""
    assert names("") == [
        *("oslo", "riga", "cork", "oslo to riga", "oslo to bern", "riga to oslo"),
        *("oslo orders", "riga orders"),
    ]
    text = shown(pressed(""))
    assert "2,000.0" in text
    assert "1.5 queue full" in text
    assert "no answer" in text


def test_a_column_sorts_the_tables_that_have_it() -> None:
    """The busiest broker, or the longest queue, would stay among hundreds."""
    published = "s" * ORDERS.index("published/s")
    assert names(published)[:2] == ["riga", "oslo"]
    assert names(f"{published}r")[:2] == ["oslo", "riga"]
    waiting = "s" * ORDERS.index("waiting")
    assert names(waiting)[3:6] == ["oslo to bern", "riga to oslo", "oslo to riga"]
    assert names(waiting)[:2] == ["oslo", "riga"], "brokers have no such column"
    assert names("s" * len(ORDERS)) == names("")


def test_names_are_typed_until_enter() -> None:
    """A letter of a name would quit, or sort."""
    assert names("/ORDERS\r") == ["cork", "oslo orders", "riga orders"]
    typing = pressed("/qs\x7f")
    assert typing.is_typing
    assert not typing.is_over
    assert "names: q_" in typing.status()
    assert names("/riga\x1b") == names("")
    assert pressed("/q\rq").is_over


def test_one_broker_is_chosen_after_the_other() -> None:
    """Links of hundreds of brokers would hide those of one."""
    assert names("b") == ["oslo", "oslo to riga", "oslo to bern", "oslo orders"]
    assert names("bb") == ["cork"]
    assert names("bbbb") == names("")


def test_the_lines_of_keys_shows_the_choices() -> None:
    """A person would not see that the picture is old, or of one broker."""
    assert pressed("").status() == (
        "q quit  p pause  s sort: as given  r reverse\n/ names: all  b broker: all"
    )
    status = pressed("psbr").status()
    assert status.startswith("q quit  p PAUSED  s sort: published/s, ascending")
    assert status.endswith("b broker: oslo")
    assert not pressed("pp").is_paused
    assert pressed(CLOSED).is_over is False, "no key"
    view = pressed("/")
    view.press(CLOSED)
    assert view.is_over, "a closed terminal ends it, while a name is typed, too"
