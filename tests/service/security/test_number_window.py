"""Numbers of a sender are taken once."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from contrada.service.security.number_window import NumberWindow

SIZE: Final = 64


@given(st.lists(st.integers(0, 3 * SIZE), max_size=60))
def test_no_number_is_taken_twice_in_any_order(numbers: list[int]) -> None:
    """A window would forget a number, or refuse a new one inside."""
    window, highest, taken = NumberWindow(SIZE), -1, set()
    for number in numbers:
        is_old = number <= highest - SIZE
        assert window.is_past(number) == is_old
        assert window.is_replay(number) == (is_old or number in taken)
        if not window.is_replay(number):
            window.take(number)
            taken.add(number)
            highest = max(highest, number)
        assert window.came < 1 << SIZE
