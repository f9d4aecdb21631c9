"""File search: only possible owners are asked, and all files are found."""

import pytest

import contrada as ct
from contrada.routing.router import Strategy
from examples.file_search.peers import shared
from examples.file_search.run import SEARCHES, Search, expected, search
from tests.asynchronous import on_loop

pytestmark = pytest.mark.slow


def met(files: dict[str, list[dict[str, object]]], text: str) -> set[str]:
    """The peers whose descriptions a search meets, each checked by itself."""
    described = {
        name: ct.RecordSource(several).describe(now_us=0) for name, several in files.items()
    }
    queries = [each.query for each in ct.SourceQuery(text).alternatives]
    return {
        name for name, offer in described.items() if any(ct.meets(each, offer) for each in queries)
    }


@on_loop
async def test_only_who_may_have_a_file_is_asked() -> None:
    """Peers would be asked in vain, or files would not be found."""
    files = shared()
    chosen = await search(Strategy.SUBSCRIPTIONS, files)
    flooded = await search(Strategy.FLOODING, files)
    wanted = expected(files)
    for searches in (chosen, flooded):
        assert {each.text: each.found for each in searches} == wanted
    for one, other in zip(chosen, flooded, strict=True):
        assert one.asked == other.asked == met(files, one.text)
        assert other.passed_on == len(files) - 1
        assert one.passed_on < other.passed_on
        assert one.messages < other.messages
    assert sum(map(passed_on, flooded)) > 2 * sum(map(passed_on, chosen))


def passed_on(of: Search) -> int:
    return of.passed_on


@pytest.mark.parametrize("text", [*SEARCHES][:-1])
def test_there_is_something_to_be_found(text: str) -> None:
    """The example would compare nothing with nothing."""
    files = shared()
    assert len(files) > 20
    assert expected(files)[text]
