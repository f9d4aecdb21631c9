"""The values and match expressions of event patterns as value sets.

Source: AWS EventBridge User Guide, "Comparison operators for use in event patterns";
AWS Event Ruler, README.
"""

import re
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from contrada.errors import InvalidValueError
from contrada.integrations.dialects.eventbridge import eventbridge_refusals as refusals
from contrada.integrations.dialects.eventbridge.eventbridge_refusals import refuse
from contrada.integrations.dialects.json_text import Inexact, is_exact
from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ABSENT, PRESENT, ValueSet, of_keys, union
from contrada.model.domains.values import INT_MAX, INT_MIN, Key, is_number, key_of

_IPV6: Final = re.compile(r"[0-9a-fA-F:]*:[0-9a-fA-F:]*")
_MASK: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_WILDCARD: Final = re.compile(r"(?:\\[*\\]|\*(?!\*)|[^\\*]+)*+")
_BOUNDS: Final = ("=", "<", "<=", ">", ">=")


def accepted_values(values: list[Any], place: str) -> ValueSet:
    """Returns the values that a field's array accepts. Cost: a sort. Raises RefusedRuleError."""
    if not values:
        refuse(refusals.EMPTY_ARRAY, values, place)
    keys: list[Key] = []
    parts: list[ValueSet] = []
    for value in values:
        if isinstance(value, dict):
            name, constant = _only_item(value, place)
            if name not in _OPERATORS:
                refuse(refusals.UNKNOWN, name, place)
            parts.append(_OPERATORS[name](constant, place))
        elif isinstance(value, str) and is_ipv6(value):
            parts.append(sets.cidr(f"{value}/128"))
        else:
            keys.append(_key(value, place))
    if keys:
        parts.append(of_keys(keys))
    return union(parts)


def is_ipv6(text: str) -> bool:
    """Whether a plain value is an IPv6 address, which accepts all its spellings."""
    return _IPV6.fullmatch(text) is not None and _address(text) is not None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Returns the address of a text. One with a zone (`%eth0`) is in no network."""
    if "%" in text:
        return None
    try:
        return IPv6Address(text) if ":" in text else IPv4Address(text)
    except ValueError:
        return None


def _key(value: object, place: str) -> Key:
    if isinstance(value, str):
        return _text_key(value, place)
    if value is None or isinstance(value, bool):
        return key_of(value)
    return key_of(_number(value, place, refusals.VALUE))


def _text_key(text: str, place: str) -> Key:
    try:
        return key_of(text)
    except InvalidValueError:
        refuse(refusals.NOT_TEXT, text, place)


def _number(value: object, place: str, reason: str) -> int | float:
    """Returns a number, as a double if it is an integer of more than 64 bits."""
    if isinstance(value, Inexact):
        refuse(refusals.INEXACT, value, place)
    if not is_number(value):
        refuse(reason, value, place)
    assert isinstance(value, int | float)
    if isinstance(value, int) and INT_MIN <= value <= INT_MAX:
        return value
    if not is_exact(value):
        refuse(refusals.INEXACT if isinstance(value, int) else reason, value, place)
    return float(value)


def _only_item(expression: dict[str, Any], place: str) -> tuple[str, Any]:
    if len(expression) != 1:
        refuse(refusals.ONE_KEY, dict(expression), place)
    return next(iter(expression.items()))


def _text(constant: object, place: str) -> str:
    if not isinstance(constant, str):
        refuse(refusals.STRING, constant, place)
    _text_key(constant, place)
    return constant


def _equals_ignore_case(constant: object, place: str) -> ValueSet:
    return sets.eq(_text(constant, place), nocase=True)


def _at_end(build: Callable[..., ValueSet], constant: object, place: str) -> ValueSet:
    """A prefix or suffix, which can ignore case."""
    if not isinstance(constant, dict):
        return build(_text(constant, place))
    name, text = _only_item(constant, place)
    if name != "equals-ignore-case":
        refuse(refusals.NOCASE, name, place)
    return build(_text(text, place), nocase=True)


def _wildcard(constant: object, place: str) -> ValueSet:
    """Here `?` is an ordinary character; in the model's wildcards it is not."""
    text = _text(constant, place)
    if _WILDCARD.fullmatch(text) is None:
        refuse(refusals.WILDCARD, text, place)
    return sets.wildcard(text.replace("?", "\\?"))


def _exists(constant: object, place: str) -> ValueSet:
    if not isinstance(constant, bool):
        refuse(refusals.EXISTS, constant, place)
    return PRESENT if constant else ABSENT


def _cidr(constant: object, place: str) -> ValueSet:
    text = _text(constant, place)
    address, _slash, mask = text.partition("/")
    read = _address(address)
    if read is None or not _MASK.fullmatch(mask) or int(mask) >= read.max_prefixlen:
        refuse(refusals.CIDR, text, place)
    if read.version == 6 and read.ipv4_mapped is not None:  # to AWS, IPv4 with too many bits
        refuse(refusals.CIDR, text, place)
    return sets.cidr(f"{address}/{int(mask)}")


def _numeric(constant: object, place: str) -> ValueSet:
    """`["=", n]`, a bound, or a lower bound and an upper one."""
    if not isinstance(constant, list) or len(constant) not in (2, 4):
        refuse(refusals.NUMERIC, constant, place)
    operators = constant[::2]
    numbers = [_number(each, place, refusals.NUMERIC) for each in constant[1::2]]
    if not all(isinstance(each, str) and each in _BOUNDS for each in operators):
        refuse(refusals.NUMERIC, constant, place)
    found = sets.OPERATORS[operators[0]](numbers[0])
    if len(operators) == 1:
        return found
    lower, upper = operators
    if lower not in (">", ">=") or upper not in ("<", "<=") or numbers[0] >= numbers[1]:
        refuse(refusals.NUMERIC, constant, place)
    return found & sets.OPERATORS[upper](numbers[1])


def _anything_but(constant: object, place: str) -> ValueSet:
    """Every present value outside."""
    if isinstance(constant, dict):
        name, texts = _only_item(constant, place)
        if name not in _INSIDE_BUT:
            refuse(refusals.BUT, name, place)
        return PRESENT - union(_INSIDE_BUT[name](each, place) for each in _strings(texts, place))
    listed = constant if isinstance(constant, list) else [constant]
    if any(isinstance(each, str) for each in listed):
        return PRESENT - of_keys(_text_key(each, place) for each in _strings(listed, place))
    if not listed or not all(is_number(each) or isinstance(each, Inexact) for each in listed):
        refuse(refusals.BUT, constant, place)
    return PRESENT - of_keys(key_of(_number(each, place, refusals.NUMERIC)) for each in listed)


def _strings(constant: object, place: str) -> list[str]:
    listed = constant if isinstance(constant, list) else [constant]
    strings = [each for each in listed if isinstance(each, str)]
    if not listed or len(strings) < len(listed):
        refuse(refusals.BUT, constant, place)
    return strings


def _non_empty(build: Callable[..., ValueSet], constant: object, place: str) -> ValueSet:
    if not constant:
        refuse(refusals.BUT_EMPTY, constant, place)
    return _at_end(build, constant, place)


_OPERATORS: Final[dict[str, Callable[[Any, str], ValueSet]]] = {
    "exactly": lambda constant, place: sets.eq(_text(constant, place)),
    "equals-ignore-case": _equals_ignore_case,
    "prefix": partial(_at_end, sets.prefix),
    "suffix": partial(_at_end, sets.suffix),
    "wildcard": _wildcard,
    "numeric": _numeric,
    "cidr": _cidr,
    "exists": _exists,
    "anything-but": _anything_but,
}

_INSIDE_BUT: Final[dict[str, Callable[[Any, str], ValueSet]]] = {
    "equals-ignore-case": _equals_ignore_case,
    "prefix": partial(_non_empty, sets.prefix),
    "suffix": partial(_non_empty, sets.suffix),
    "wildcard": _wildcard,
}

_RESERVED: Final = (
    *("regex", "not-wildcard", "not-equals-ignore-case", "date-after", "date-on-or-after"),
    *("date-before", "date-on-or-before", "in-date-range"),
    *("ip-address-in-range", "ip-address-not-in-range"),
)
OPERATOR_NAMES: Final = frozenset((*_OPERATORS, *_BOUNDS, *_RESERVED))
"""Names that no field within `$or` has; AWS reserves some."""
