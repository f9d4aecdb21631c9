"""`QueryingService`: the part of a service that asks sources, and offers some.

What that needs is loaded when something is asked or offered first.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from contrada.service.interface import Service
from contrada.service.query_interface import Answers, Computed, Description, SourceLike, SourceOffer

if TYPE_CHECKING:
    from contrada.service.query.query_engine import QueryEngine


class QueryingService(Service):
    """A service that asks, and is asked, by one `QueryEngine`."""

    @abstractmethod
    def _questioning(self) -> "QueryEngine":
        """What it asks, and is asked."""

    def offer(
        self, description: Description | None, source: SourceLike, *, name: str = ""
    ) -> SourceOffer:
        """A source that answers questions; see `Service.offer`."""
        return self._questioning().answerer.offer(description, source, name=name)

    def query(self, subject: Any, where: Any = None, **options: Any) -> Any:
        """Ask all sources that may have an answer; see `Service.query`."""
        return self._questioning().asker.query(subject, where, **options)

    def compute(
        self,
        aggregates: Computed | Iterable[Computed],
        subject: Any,
        where: Any = None,
        **options: Any,
    ) -> Answers[dict[str, Any]]:
        """Ask for what is computed of all answers; see `Service.compute`."""
        return self._questioning().asker.compute(aggregates, subject, where, **options)
