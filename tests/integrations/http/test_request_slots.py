"""Slots of requests: their bounds, and that each is free again."""

import pytest

from contrada.errors import RefusedRequestError
from contrada.integrations.http.request_slots import RequestSlots


def test_a_user_has_some_slots_and_all_users_more() -> None:
    """A user could hold up all others, or many users the broker."""
    slots = RequestSlots("trials (trials_max)", per_user=2, in_all=3)
    with slots.take("a"), slots.take("a"):
        with pytest.raises(RefusedRequestError, match=r"trials_max.*'a' has 2 already") as refused:
            slots.take("a").__enter__()
        assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
        with slots.take("b"):
            with pytest.raises(RefusedRequestError, match="there are 3 already") as refused:
                slots.take("c").__enter__()
            assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        with slots.take("c"):
            pass
    assert not slots._running


def test_a_slot_is_free_after_an_error() -> None:
    """A failed request would take its user's slot for ever."""
    slots = RequestSlots("looks at the network")
    for _ in range(2):
        with pytest.raises(OSError, match="gone"), slots.take("a"):
            raise OSError("gone")
    with slots.take("a"), slots.take("b"):
        pass
    assert not slots._running
