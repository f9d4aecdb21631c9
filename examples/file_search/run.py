"""Searches among peers: what is found, by whom, and at the price of how many messages.

    python -m examples.file_search

Each search is made twice: in a network that knows what its peers have, where it goes only to those
that may have it, and in one that asks everybody. Both must find what a look into all files finds.

Source: CU-CS-948-03 §1 (searching files among peers, as Gnutella does by asking everybody).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from contrada.routing.router import Strategy
from examples.file_search.peers import File, network, shared

Found = frozenset[tuple[str, str, int]]
"""Which peer has which file, of which size."""

SEARCHES: Final[dict[str, Callable[[File], bool]]] = {
    'name = "decoder.py"': lambda it: it["name"] == "decoder.py",
    'words = "parser" and kind = "py"': lambda it: "parser" in it["words"] and it["kind"] == "py",
    'name contains "server"': lambda it: "server" in it["name"],
    'kind != "py" and size > 100000': lambda it: it["kind"] != "py" and it["size"] > 100_000,
    "kind = 'py' and size > 100000": lambda it: it["kind"] == "py" and it["size"] > 100_000,
    'name = "nowhere.mp3"': lambda it: it["name"] == "nowhere.mp3",
}
WAIT_S: Final = 60.0
"""No search takes as long."""


@dataclass(frozen=True)
class Search:
    """What came of a search: who was asked, what was found, and at which price.

    `passed_on` is how often a server asked another, `messages` counts what came back too.
    """

    text: str
    asked: frozenset[str]
    found: Found
    passed_on: int
    messages: int


async def search(strategy: Strategy, files: dict[str, list[File]] | None = None) -> list[Search]:
    """All searches, each from another peer."""
    shares = shared() if files is None else files
    searches = []
    async with network(shares, strategy) as peers:
        for number, text in enumerate(SEARCHES):
            before = peers.messages()
            answers: Any = peers.services[7 * number % len(shares)].query(text, timeout_s=WAIT_S)
            found = frozenset(
                [(each.envelope.publisher, each["name"], each["size"]) async for each in answers]
            )
            if not answers.is_complete:
                raise SystemExit(f"{text}: {answers.reports}")
            asked = frozenset(each.name for each in answers.reports)
            passed_on, messages = (
                after - each for each, after in zip(before, peers.messages(), strict=True)
            )
            searches.append(Search(text, asked, found, passed_on, messages))
    return searches


def expected(files: dict[str, list[File]]) -> dict[str, Found]:
    """What a look into all files finds."""
    return {
        text: frozenset(
            (peer, each["name"], each["size"])
            for peer, several in files.items()
            for each in several
            if is_wanted(each)
        )
        for text, is_wanted in SEARCHES.items()
    }
