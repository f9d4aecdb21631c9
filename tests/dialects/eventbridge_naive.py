"""Event patterns evaluated on JSON events as they are: no filters, no value sets.

An event is its plain values, each with its name and the elements of arrays that it stands in. A
pattern matches when one element of every array of objects can be chosen so that each of its
fields accepts a value that stands in chosen elements only, or asks for absence and there is none.
"""

import ipaddress
import itertools
from collections.abc import Iterator
from typing import Any

Elements = dict[int, int]
"""By the number of an array, the place of the element."""

Leaf = tuple[str, Any, Elements]


def matches(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether the pattern, which is valid, matches the event."""
    arrays: list[list[int]] = []
    leaves = list(_leaves(event, "", {}, arrays))
    return any(
        _holds(pattern, "", [leaf for leaf in leaves if _stands(leaf, chosen)])
        for chosen in itertools.product(*arrays)
    )


def _stands(leaf: Leaf, chosen: tuple[int, ...]) -> bool:
    return all(chosen[array] == place for array, place in leaf[2].items())


def _leaves(content: Any, name: str, around: Elements, arrays: list[list[int]]) -> Iterator[Leaf]:
    if isinstance(content, dict):
        for step, inner in content.items():
            yield from _leaves(inner, f"{name}.{step}" if name else step, around, arrays)
    elif isinstance(content, list) and _has_objects(content):
        array = len(arrays)
        arrays.append([n for n, each in enumerate(content) if isinstance(each, dict | list)])
        for place, inner in enumerate(content):
            inside = {array: place} if isinstance(inner, dict | list) else {}
            yield from _leaves(inner, name, around | inside, arrays)
    elif isinstance(content, list):
        for inner in content:
            yield from _leaves(inner, name, around, arrays)
    else:
        yield name, content, around


def _has_objects(content: Any) -> bool:
    if isinstance(content, dict):
        return True
    return isinstance(content, list) and any(map(_has_objects, content))


def _holds(pattern: dict[str, Any], path: str, leaves: list[Leaf]) -> bool:
    for step, inner in pattern.items():
        name = f"{path}.{step}" if path else step
        if step == "$or":
            held = any(_holds(each, path, leaves) for each in inner)
        elif isinstance(inner, dict):
            held = _holds(inner, name, leaves)
        else:
            values = [value for leaf, value, _ in leaves if leaf == name]
            held = any(_accepts(each, values) for each in inner)
        if not held:
            return False
    return True


def _accepts(wanted: Any, values: list[Any]) -> bool:
    if wanted == {"exists": False}:
        return not values
    return any(_accepts_one(wanted, value) for value in values)


def _accepts_one(wanted: Any, value: Any) -> bool:
    if not isinstance(wanted, dict):
        return _equal(wanted, value) or (":" in str(wanted) and _in(f"{wanted}/128", value))
    [(operator, constant)] = wanted.items()
    match operator, constant:
        case "exists", _:
            return True
        case "numeric", _:
            return _is_number(value) and all(
                _compares(value, *pair) for pair in zip(constant[::2], constant[1::2], strict=True)
            )
        case "cidr", _:
            return _in(constant, value)
        case "anything-but", dict():
            [(inner, texts)] = constant.items()
            listed = texts if isinstance(texts, list) else [texts]
            return not any(_accepts_one({inner: text}, value) for text in listed)
        case "anything-but", _:
            listed = constant if isinstance(constant, list) else [constant]
            return not any(_equal(each, value) for each in listed)
        case _, {"equals-ignore-case": text}:
            return isinstance(value, str) and _is(operator, text.lower(), value.lower())
        case "equals-ignore-case", _:
            return isinstance(value, str) and constant.lower() == value.lower()
    return isinstance(value, str) and _is(operator, constant, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(one: Any, other: Any) -> bool:
    if _is_number(one) and _is_number(other):
        return bool(one == other)
    return type(one) is type(other) and bool(one == other)


def _compares(value: float, operator: str, bound: float) -> bool:
    return {
        "=": value == bound,
        "<": value < bound,
        "<=": value <= bound,
        ">": value > bound,
        ">=": value >= bound,
    }[operator]


def _is(operator: str, constant: str, value: str) -> bool:
    match operator:
        case "exactly":
            return value == constant
        case "prefix":
            return value.startswith(constant)
        case "suffix":
            return value.endswith(constant)
    assert operator == "wildcard"
    return _has_shape(constant, value)


def _has_shape(shape: str, value: str) -> bool:
    if not shape:
        return not value
    if shape[0] == "*":
        return any(_has_shape(shape[1:], value[n:]) for n in range(len(value) + 1))
    first, rest = (shape[1], shape[2:]) if shape[0] == "\\" else (shape[0], shape[1:])
    return value[:1] == first and _has_shape(rest, value[1:])


def _in(network: str, value: Any) -> bool:
    try:
        inside = ipaddress.ip_address(value) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
    return inside and isinstance(value, str)
