"""Searches among peers: the files found, their owners, and the number of messages.

    python -m examples.file_search

Each search is made twice: in a network with descriptions, where it reaches only the possible
owners, and in one with flooding. Both must find the same as a loop over all files.

Source: CU-CS-948-03 §1 (searching files among peers, as Gnutella does by flooding).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from contrada.routing.router import Strategy
from examples.file_search.peers import File, network, shared

Found = frozenset[tuple[str, str, int]]
"""The owner and size of each file."""

SEARCHES: Final[dict[str, Callable[[File], bool]]] = {
    'name = "decoder.py"': lambda it: it["name"] == "decoder.py",
    'words = "parser" and kind = "py"': lambda it: "parser" in it["words"] and it["kind"] == "py",
    'name contains "server"': lambda it: "server" in it["name"],
    'kind != "py" and size > 100000': lambda it: it["kind"] != "py" and it["size"] > 100_000,
    "kind = 'py' and size > 100000": lambda it: it["kind"] == "py" and it["size"] > 100_000,
    'name = "nowhere.mp3"': lambda it: it["name"] == "nowhere.mp3",
}
WAIT_S: Final = 60.0
"""Seconds that no search exceeds."""


@dataclass(frozen=True)
class Search:
    """The result of a search: the asked peers, the found files, and the messages.

    `passed_on` counts questions between servers, `messages` the answers too.
    """

    text: str
    asked: frozenset[str]
    found: Found
    passed_on: int
    messages: int


async def search(strategy: Strategy, files: dict[str, list[File]] | None = None) -> list[Search]:
    """Runs all searches, each from another peer."""
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
    """Returns the files that a loop over all files finds."""
    return {
        text: frozenset(
            (peer, each["name"], each["size"])
            for peer, several in files.items()
            for each in several
            if is_wanted(each)
        )
        for text, is_wanted in SEARCHES.items()
    }
