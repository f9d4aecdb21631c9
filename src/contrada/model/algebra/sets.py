"""The operators on values: each turns constants into a `ValueSet`.

They are public as `ct.ops`, and the words of the text syntax. The three complements differ: `ne`
and `not_in` remain inside the domains of their constants; `any_but` is every other present value;
`none_of` includes *absent*.

Source: PODC 2000 §2 (operators); CU-CS-946-03 table 1; CU-CS-948-03 table 1.
"""

from collections.abc import Callable, Sequence
from typing import Final

from contrada.errors import InvalidFilterError, InvalidValueError
from contrada.model.algebra.value_set import (
    ABSENT,
    EVERYTHING,
    PRESENT,
    ValueSet,
    of_cuts,
    of_keys,
    union,
)
from contrada.model.domains import line
from contrada.model.domains.values import NAN, NULL, NUMBER, TEXT, Key, Value, key_of
from contrada.model.languages import casefold, ip_network, regex_operator, regex_syntax
from contrada.model.languages import wildcard as wildcards
from contrada.model.languages.atoms import Atom, atom_of, registry
from contrada.model.languages.language import Literal, some
from contrada.model.languages.regex_operator import Plain

ALL_TEXT: Final = ValueSet(line.ALL_TEXT)


def eq(value: Value, *, nocase: bool = False) -> ValueSet:
    """Returns the set of one value; with `nocase` of all texts that differ in case only."""
    if nocase:
        return extension("= nocase", value)
    return of_cuts(line.point(_key("=", value)))


def ne(value: Value, *, nocase: bool = False) -> ValueSet:
    """Returns the other values of the constant's domain; for null all present values but null."""
    if nocase:
        return ALL_TEXT - eq(value, nocase=True)
    return not_in(value)


def lt(value: Value) -> ValueSet:
    """Returns every smaller value of the constant's domain."""
    return of_cuts(line.below(_bound("<", value)))


def le(value: Value) -> ValueSet:
    """Returns every smaller or equal value of the constant's domain."""
    return of_cuts(line.at_most(_bound("<=", value)))


def gt(value: Value) -> ValueSet:
    """Returns every larger value of the constant's domain."""
    return of_cuts(line.above(_bound(">", value)))


def ge(value: Value) -> ValueSet:
    """Returns every larger or equal value of the constant's domain."""
    return of_cuts(line.at_least(_bound(">=", value)))


def between(low: Value, high: Value) -> ValueSet:
    """Returns every value from `low` to `high`, both included; none if low is above high."""
    low_key, high_key = _bound("between", low), _bound("between", high)
    if low_key[0] != high_key[0]:
        raise InvalidFilterError("between", (low, high), "both ends must be of one domain")
    return of_cuts(line.interval(line.cut_before(low_key), line.cut_after(high_key)))


def in_(*constants: Value, nocase: bool = False) -> ValueSet:
    """Returns the values named; with `nocase` every text that equals one but for case."""
    if nocase:
        _some_constants("in nocase", constants)
        atoms = (Literal(_atom("= nocase", value), True) for value in constants)
        return of_cuts(line.EMPTY, some(atoms))
    return of_keys(_keys("in", constants))


def not_in(*constants: Value, nocase: bool = False) -> ValueSet:
    """Returns the other values of the domains named; of null alone every present value but null."""
    if nocase:
        return ALL_TEXT - in_(*constants, nocase=True)
    keys = _keys("not in", constants)
    tags = {NUMBER if key[0] == NAN else key[0] for key in keys}
    if tags == {NULL}:
        return PRESENT - of_keys(keys)
    domains = line.EMPTY
    for tag in tags:
        domains = line.union(domains, line.domain(tag))
    return of_cuts(domains) - of_keys(keys)


def prefix(value: str | bytes, *, nocase: bool = False) -> ValueSet:
    """Returns every text that begins with the constant."""
    if nocase:
        return extension("prefix nocase", value)
    return of_cuts(line.starting_with(_text("prefix", value)))


def suffix(value: str | bytes, *, nocase: bool = False) -> ValueSet:
    """Returns every text that ends with the constant."""
    return extension("suffix nocase" if nocase else "suffix", value)


def contains(value: str | bytes, *, nocase: bool = False) -> ValueSet:
    """Returns every text that contains the constant."""
    return extension("contains nocase" if nocase else "contains", value)


def matches(pattern: str | bytes, flags: str = "") -> ValueSet:
    """Returns every text in which a regular expression of the linear kind finds a match.

    Flags: `i` ignores case, `m` matches `^` and `$` at every line, `s` makes `.` match line feeds.
    Cost: linear in the expression. `regex_syntax` lists the syntax and the refused constructs.
    """
    text = _utf8("matches", pattern)
    given: object = flags
    if not isinstance(given, str):
        reason = "the flags are text; `ct.matches(filter, notification)` is the relation"
        raise InvalidFilterError("matches", (pattern, given), reason)
    constant = regex_syntax.normal(text, flags)
    plain = regex_operator.plain_forms(regex_operator.tree_of(constant.encode()))
    if plain is None:
        return extension("matches", constant)
    return union(map(of_plain, plain))


def wildcard(value: str | bytes, *, nocase: bool = False) -> ValueSet:
    """Returns every text of a shape: `*` any text, `?` one character, a backslash before these."""
    constant = wildcards.normal(_utf8("wildcard", value))
    plain = wildcards.plain_form(constant, nocase=nocase)
    if plain is None:
        return extension("wildcard nocase" if nocase else "wildcard", constant)
    return of_plain(plain)


def cidr(value: str | bytes) -> ValueSet:
    """Returns every text that is an IP address of a network: `10.0.0.0/8` or `2001:db8::/32`."""
    return extension("cidr", str(ip_network.network_of(_text("cidr", value))))


def exists() -> ValueSet:
    """Returns every present value."""
    return PRESENT


def absent() -> ValueSet:
    """Returns the set of *absent* alone."""
    return ABSENT


def any_but(*constants: Value) -> ValueSet:
    """Returns every present value, of any domain, but the ones named."""
    return PRESENT - of_keys(_keys("any but", constants))


def none_of(*constants: Value) -> ValueSet:
    """Returns every value but the ones named, or absent."""
    return EVERYTHING - of_keys(_keys("none of", constants))


def text_not(of: ValueSet) -> ValueSet:
    """Returns the other texts, for `not` before an operator on text."""
    return ALL_TEXT - of


OPERATORS: Final[dict[str, Callable[..., ValueSet]]] = {
    "=": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
    "in": in_,
    "not in": not_in,
    "between": between,
    "prefix": prefix,
    "suffix": suffix,
    "contains": contains,
    "matches": matches,
    "wildcard": wildcard,
    "cidr": cidr,
    "any": exists,
    "absent": absent,
    "any but": any_but,
    "none of": none_of,
}
"""The built-in operators by name. The names of operators on text come from the registry."""

SYNONYMS: Final = {">*": "prefix", "*<": "suffix", "*": "contains", "exists": "any"}
"""Other spellings, the papers' symbols among them."""


def of_operator(operator: str, constants: Sequence[Value]) -> ValueSet:
    """Returns the set of an operator. Raises UnknownOperatorError, InvalidFilterError."""
    build = OPERATORS.get(SYNONYMS.get(operator, operator))
    if build is None:
        if len(constants) != 1:
            raise InvalidFilterError(operator, tuple(constants), "expected one constant")
        return extension(operator, constants[0])
    try:
        return build(*constants)
    except TypeError:
        reason = f"{len(constants)} constants do not fit this operator"
        raise InvalidFilterError(operator, tuple(constants), reason) from None


def extension(operator: str, constant: Value) -> ValueSet:
    """Returns the texts of an operator. Raises UnknownOperatorError, InvalidFilterError."""
    registry.get(operator)
    atom = _atom(operator, constant)
    if not atom.constant and operator in ("suffix", "contains"):
        return ALL_TEXT
    return of_cuts(line.EMPTY, Literal(atom, True))


def _atom(operator: str, value: Value) -> Atom:
    constant = _text(operator, value)
    if operator.endswith(" nocase"):
        return Atom(operator, casefold.fold(atom_of(operator, constant).constant))
    return atom_of(operator, constant)


def of_plain(form: Plain) -> ValueSet:
    """Returns the set of an operator that is no regular expression."""
    if form.operator == "=" or form.text:
        return OPERATORS[form.operator](form.text, nocase=form.nocase)
    return ALL_TEXT


def _utf8(operator: str, value: Value) -> str:
    try:
        return _text(operator, value).decode()
    except UnicodeDecodeError:
        raise InvalidFilterError(operator, (value,), "the constant must be UTF-8 text") from None


def _text(operator: str, value: Value) -> bytes:
    key = _key(operator, value)
    if key[0] != TEXT:
        raise InvalidFilterError(operator, (value,), "the constant must be text")
    return key[1]  # type: ignore[return-value]


def _key(operator: str, value: Value) -> Key:
    try:
        return key_of(value)
    except InvalidValueError as error:
        raise InvalidFilterError(operator, (value,), error.reason) from None


def _bound(operator: str, value: Value) -> Key:
    key = _key(operator, value)
    if key[0] == NULL:
        raise InvalidFilterError(operator, (value,), "null has no order")
    if key[0] == NAN:
        raise InvalidFilterError(operator, (value,), "NaN has no place in the order of numbers")
    return key


def _keys(operator: str, constants: Sequence[Value]) -> list[Key]:
    _some_constants(operator, constants)
    return [_key(operator, value) for value in constants]


def _some_constants(operator: str, constants: Sequence[Value]) -> None:
    if not constants:
        raise InvalidFilterError(operator, (), "expected at least one constant")
