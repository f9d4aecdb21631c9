"""`Quality`: a delivery guarantee, required by a collection and given by a type.

Source: EPFL 2503 §4.4, figure 4.7.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import StrEnum

from contrada.delivery.delivery_class import BEST_EFFORT, delivery_class
from contrada.errors import InvalidObventError
from contrada.typed.collections.collection_space import ALL_SUBJECTS


class Quality(StrEnum):
    """One delivery guarantee."""

    RELIABLE = "reliable"
    CERTIFIED = "certified"
    FIFO = "fifo"
    CAUSAL = "causal"
    TOTAL = "total"


def with_implied(asked: Iterable[Quality]) -> frozenset[Quality]:
    """Returns these with all implied ones: causal order implies FIFO, and each implies reliable."""
    found = frozenset(asked)
    if Quality.CAUSAL in found:
        found |= {Quality.FIFO}
    return found | {Quality.RELIABLE} if found else found


def qualities_of(delivery: str) -> frozenset[Quality]:
    """Returns the guarantees of a delivery class."""
    found = delivery_class(delivery)
    given = {
        Quality.RELIABLE: found.is_reliable,
        Quality.CERTIFIED: found.is_certified,
        Quality.FIFO: found.is_fifo,
        Quality.CAUSAL: found.is_causal,
        Quality.TOTAL: bool(found.sequence),
    }
    return frozenset(quality for quality, is_given in given.items() if is_given)


def check_promises(collection: str, asked: AbstractSet[Quality], name: str, delivery: str) -> None:
    """Raises InvalidObventError if a collection promises more than the delivery of its type."""
    lacking = [each for each in Quality if each in asked - qualities_of(delivery)]
    if lacking:
        words = " and ".join(lacking)
        raise InvalidObventError(
            name, f"a {collection} promises {words}; its objects are published {delivery!r}"
        )


def delivery_of(asked: AbstractSet[Quality]) -> str:
    """Returns the delivery class with these guarantees, for elements without a type."""
    if Quality.RELIABLE not in asked:
        return BEST_EFFORT
    words = [Quality.CERTIFIED if Quality.CERTIFIED in asked else Quality.RELIABLE]
    words += [Quality.CAUSAL if Quality.CAUSAL in asked else Quality.FIFO] * (Quality.FIFO in asked)
    total = [f"{Quality.TOTAL}:{ALL_SUBJECTS}"] if Quality.TOTAL in asked else []
    return " ".join([*words, *total])
