"""Event patterns evaluated directly on JSON events: no filters, no value sets.

An event is its plain values, each with its name and the elements of arrays around it. A pattern
matches if its fields, in the order of their names, can each take a value that is in no other
element than the previous values, or require absence if there is no such value.
"""

import ipaddress
import itertools
from collections.abc import Iterator
from typing import Any

Elements = dict[int, int]
"""By the number of an array, the place of the element."""

Leaf = tuple[str, Any, Elements]

Fields = dict[str, list[Any]]
"""The constraints of a conjunction: the accepted values by name."""


def matches(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether the pattern, which is valid, matches the event."""
    leaves = list(_leaves(event, "", {}, itertools.count()))
    return any(_holds(fields, leaves) for fields in alternatives(pattern, ""))


def _leaves(content: Any, name: str, around: Elements, arrays: Iterator[int]) -> Iterator[Leaf]:
    if isinstance(content, dict):
        for step, inner in content.items():
            yield from _leaves(inner, f"{name}.{step}" if name else step, around, arrays)
    elif isinstance(content, list):
        array = next(arrays)
        for place, inner in enumerate(content):
            inside = {array: place} if isinstance(inner, dict | list) else {}
            yield from _leaves(inner, name, around | inside, arrays)
    else:
        yield name, content, around


def alternatives(pattern: dict[str, Any], path: str) -> Iterator[Fields]:
    """The fields that must hold together, for each choice of alternatives."""
    choices: list[list[Fields]] = []
    for step, inner in pattern.items():
        name = f"{path}.{step}" if path else step
        if step == "$or":
            choices.append([fields for each in inner for fields in alternatives(each, path)])
        elif isinstance(inner, dict):
            choices.append(list(alternatives(inner, name)))
        else:
            choices.append([{name: inner}])
    for chosen in itertools.product(*choices):
        yield {name: wanted for fields in chosen for name, wanted in fields.items()}


def _holds(fields: Fields, leaves: list[Leaf]) -> bool:
    """Whether each field can take a value, or absence, in the order of the names."""
    options = [[*(leaf for leaf in leaves if leaf[0] == name), None] for name in sorted(fields)]
    return any(
        _is_consistent([fields[name] for name in sorted(fields)], sorted(fields), chosen, leaves)
        for chosen in itertools.product(*options)
    )


def _is_consistent(
    wanted: list[list[Any]], names: list[str], chosen: tuple[Leaf | None, ...], leaves: list[Leaf]
) -> bool:
    elements: Elements = {}
    for accepted, name, leaf in zip(wanted, names, chosen, strict=True):
        if leaf is None:
            is_there = any(each[0] == name and _fits(each[2], elements) for each in leaves)
            if is_there or {"exists": False} not in accepted:
                return False
        elif not _fits(leaf[2], elements) or not _accepts(accepted, leaf[1]):
            return False
        else:
            elements = elements | leaf[2]
    return True


def _fits(one: Elements, other: Elements) -> bool:
    return all(other.get(array, place) == place for array, place in one.items())


def _accepts(accepted: list[Any], value: Any) -> bool:
    return any(_accepts_one(each, value) for each in accepted if each != {"exists": False})


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
