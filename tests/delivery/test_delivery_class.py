"""`DeliveryClass`: the words of a delivery class."""

import pytest

from contrada.delivery.delivery_class import DeliveryClass, delivery_class
from contrada.errors import InvalidValueError


@pytest.mark.parametrize(
    ("text", "guarantee"),
    [
        ("best-effort", DeliveryClass()),
        ("reliable", DeliveryClass(is_reliable=True)),
        ("certified", DeliveryClass(is_reliable=True, is_certified=True)),
        ("reliable fifo", DeliveryClass(is_reliable=True, is_fifo=True)),
        ("reliable causal", DeliveryClass(is_reliable=True, is_fifo=True, is_causal=True)),
        ("reliable total:a", DeliveryClass(is_reliable=True, sequence="a")),
        ("certified causal total:a", DeliveryClass(True, True, True, True, "a")),
        ("certified fifo total:b", DeliveryClass(True, True, True, False, "b")),
    ],
)
def test_words_name_guarantees(text: str, guarantee: DeliveryClass) -> None:
    """A publisher would get another guarantee than it requested."""
    assert delivery_class(text) == guarantee


@pytest.mark.parametrize(
    "text",
    [
        *("", "sure", "reliable sure", "fifo", "reliable  fifo", "reliable total:", "total:a"),
        *(
            "best-effort fifo",
            "best-effort total:a",
            "reliable total:a fifo",
            "reliable fifo causal",
        ),
    ],
)
def test_other_words_are_refused(text: str) -> None:
    """A publisher would rely on an unknown guarantee."""
    with pytest.raises(InvalidValueError):
        delivery_class(text)


def test_causal_order_is_fifo_and_both_are_orders() -> None:
    """An ordered notification would be overtaken by priority."""
    assert delivery_class("reliable causal").is_ordered
    assert delivery_class("reliable total:a").is_ordered
    assert not delivery_class("certified").is_ordered
