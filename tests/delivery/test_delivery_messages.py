"""Messages of delivery: no receiver changes them."""

from types import ModuleType

import msgspec
import pytest

from contrada.delivery import delivery_messages, queue_messages


@pytest.mark.parametrize("module", [delivery_messages, queue_messages])
def test_messages_are_frozen(module: ModuleType) -> None:
    """A server that forwards a message to several neighbours could change it for all of them."""
    messages = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct)
        if each.__module__ == module.__name__
    ]
    assert messages
    assert [each.__name__ for each in messages if not each.__struct_config__.frozen] == []
