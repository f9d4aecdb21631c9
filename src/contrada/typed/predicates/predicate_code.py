"""`CodeAnalysis`: the names in a predicate's code, and whether its runs can be recorded.

A predicate runs as a copy, with recording values. The copy is correct only if these values see each
action of the code. So its instructions are checked first: an unknown instruction keeps the whole
predicate at the subscriber, with the reason.

The code of the copy differs in its constants (a constant on the right of `in` becomes a recording
container), and it catches nothing. If the code has handlers, a run that raises ends there; the
handler is not run.

Source: EPFL 2503 §5.3.4 (restrictions on closures).
"""

import dis
import inspect
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any, Final

from contrada.typed.predicates.captured_constants import to_run_constant

ANALYSES_CACHED_MAX: Final = 512
"""Codes of predicates with a cached analysis. Beyond it: the least recently used is dropped."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PLAIN: Final = _words(
    """
CACHE RESUME NOP POP_TOP PUSH_NULL COPY SWAP EXTENDED_ARG PRECALL CALL KW_NAMES CALL_KW
CALL_FUNCTION_EX DICT_MERGE LOAD_CONST LOAD_SMALL_INT LOAD_COMMON_CONSTANT LOAD_FAST
LOAD_FAST_CHECK
LOAD_FAST_AND_CLEAR LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW
LOAD_FAST_LOAD_FAST STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_FAST_MAYBE_NULL
DELETE_FAST LOAD_GLOBAL LOAD_DEREF LOAD_CLOSURE COPY_FREE_VARS MAKE_CELL MAKE_FUNCTION
SET_FUNCTION_ATTRIBUTE LOAD_ATTR LOAD_METHOD COMPARE_OP CONTAINS_OP BINARY_OP BINARY_SUBSCR
BINARY_SLICE BUILD_SLICE UNARY_NOT UNARY_NEGATIVE UNARY_POSITIVE UNARY_INVERT TO_BOOL GET_ITER
FOR_ITER END_FOR POP_ITER NOT_TAKEN RETURN_VALUE RETURN_CONST BUILD_TUPLE BUILD_LIST BUILD_SET
BUILD_MAP
BUILD_CONST_KEY_MAP BUILD_STRING FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE
LIST_EXTEND SET_UPDATE DICT_UPDATE LIST_APPEND SET_ADD MAP_ADD LIST_TO_TUPLE UNPACK_SEQUENCE
UNPACK_EX STORE_SUBSCR LOAD_ASSERTION_ERROR RAISE_VARARGS RERAISE PUSH_EXC_INFO POP_EXCEPT
CHECK_EXC_MATCH JUMP_FORWARD JUMP_BACKWARD JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP
POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE
POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE RETURN_GENERATOR YIELD_VALUE
"""
)
_IDENTITY: Final = _words(
    """
POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE IS_OP
"""
)
_INTRINSICS: Final = frozenset((3, 5, 6))
"""The permitted operands of CALL_INTRINSIC_1: StopIteration in a generator, unary plus, list to
tuple."""

_WORDS: Final = {
    "STORE_GLOBAL": "it stores a global name",
    "DELETE_GLOBAL": "it deletes a global name",
    "STORE_ATTR": "it sets an attribute",
    "DELETE_ATTR": "it deletes an attribute",
    "IMPORT_NAME": "it imports",
    "BEFORE_WITH": "it has a `with` statement",
    "LOAD_SPECIAL": "it has a `with` statement",
    "LOAD_BUILD_CLASS": "it makes a class",
    "MATCH_CLASS": "it matches a class pattern",
    "MATCH_MAPPING": "it matches a mapping pattern",
    "MATCH_SEQUENCE": "it matches a sequence pattern",
}

# Frames give access to everything, and the clock gives another value each time.
_DENIED: Final = _words("gi_frame gi_code cr_frame ag_frame tb_frame now utcnow today")
_CHANGING: Final = frozenset(("dict", "list", "set"))
"""Classes with methods that bypass the write protection of a run's constants."""

_LIVE: Final = frozenset(("eval", "exec", "globals", "locals", "vars", "__import__"))

_RAISING: Final = _words(
    """
LOAD_ATTR LOAD_METHOD LOAD_GLOBAL LOAD_DEREF LOAD_FAST LOAD_FAST_CHECK COMPARE_OP CONTAINS_OP
BINARY_OP BINARY_SUBSCR BINARY_SLICE UNARY_NEGATIVE UNARY_POSITIVE UNARY_INVERT GET_ITER
UNPACK_SEQUENCE UNPACK_EX RAISE_VARARGS LOAD_FAST_LOAD_FAST STORE_FAST_LOAD_FAST
"""
)
"""Instructions whose errors are Python's own: a recording operand is called first."""

Chain = tuple[str, ...]
"""A name and the attributes read from it."""

Refusal = tuple[str, CodeType, int]
"""The reason why runs cannot be recorded, and its instruction."""


@dataclass(slots=True)
class CodeAnalysis:
    """The analysis of one code object, with those nested in it; not changed once it is made.

    `refusal` is the reason why its runs cannot be recorded. `copy` is the code to run, None with a
    refusal.
    """

    copy: CodeType | None = None
    refusal: Refusal | None = None
    names: set[str] = field(default_factory=set)
    identities: list[tuple[Chain, CodeType, int]] = field(default_factory=list)
    tests_identity: bool = False
    has_handlers: bool = False
    is_live: bool = False


@lru_cache(maxsize=ANALYSES_CACHED_MAX)
def analysis_of(code: CodeType, _file: str) -> CodeAnalysis:
    """Returns the analysis of a code object. Cost: some hundred microseconds the first time."""
    return _CodeAnalyzer(code).analysis()


def may_raise_here(code: CodeType, at: int, error: BaseException, recorders: list[str]) -> bool:
    """Whether an error at an instruction would be raised with real values, too."""
    name, words = _instructions(code)[at]
    if name not in _RAISING:
        return False
    if name == "BINARY_OP":
        return "%" not in words
    text = " ".join(it for it in error.args if isinstance(it, str))
    return not any(recorder in text for recorder in recorders)


@lru_cache(maxsize=ANALYSES_CACHED_MAX)
def _instructions(code: CodeType) -> dict[int, tuple[str, str]]:
    return {each.offset: (each.opname, each.argrepr) for each in dis.get_instructions(code)}


class _CodeAnalyzer:
    def __init__(self, code: CodeType, *, is_inner: bool = False) -> None:
        self.code = code
        self.is_inner = is_inner
        self.instructions = [it for it in dis.get_instructions(code) if it.opname != "CACHE"]
        self.by_offset = {it.offset: it for it in self.instructions}
        self.found = CodeAnalysis()
        self.only_in = self._only_in()

    def analysis(self) -> CodeAnalysis:
        flags = self.code.co_flags
        generates = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
        if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            self._refuse("it is asynchronous", 0)
        elif flags & generates and not self.is_inner:
            self._refuse("it is a generator", 0)
        for place, each in enumerate(self.instructions):
            self._look(place, each)
        constants = tuple(map(self._constant, range(len(self.code.co_consts))))
        if self.found.refusal is None:
            table = b"" if self.found.has_handlers else self.code.co_exceptiontable
            self.found.copy = self.code.replace(co_consts=constants, co_exceptiontable=table)
        return self.found

    def _look(self, place: int, each: dis.Instruction) -> None:
        name, at = each.opname, each.offset
        if name == "IS_OP" and self.instructions[place - 1].opname == "LOAD_COMMON_CONSTANT":
            return  # Python 3.14 asks whether `any` of `any(… for …)` is its own, and then loops.
        if name in _IDENTITY:
            self.found.tests_identity = True
            if name == "IS_OP":
                self._identity(place, at)
        elif (name == "CALL_INTRINSIC_1" and each.arg in _INTRINSICS) or (
            name == "STORE_DEREF" and each.argval in self.code.co_cellvars
        ):
            return
        elif name in ("STORE_DEREF", "DELETE_DEREF"):
            self.found.is_live = True
            self._refuse(f"it stores {each.argval!r} of an outer function", at)
        elif name not in _PLAIN:
            self.found.is_live = self.found.is_live or "GLOBAL" in name
            self._refuse(_WORDS.get(name, f"it has an instruction {name}"), at)
        if name in ("LOAD_ATTR", "LOAD_METHOD"):
            if each.argval.startswith(("__", "_contrada_")) or each.argval in _DENIED:
                self._refuse(f"it takes the attribute {each.argval!r}", at)
            before = self.instructions[place - 1]
            if before.opname == "LOAD_GLOBAL" and before.argval in _CHANGING:
                self._refuse(f"it takes {each.argval!r} of class {before.argval}", at)
        elif name == "LOAD_GLOBAL":
            self.found.names.add(each.argval)
            self.found.is_live = self.found.is_live or each.argval in _LIVE
        elif name in ("POP_EXCEPT", "CHECK_EXC_MATCH"):
            self.found.has_handlers = True
        if "JUMP" in name and each.argval is not None and each.argval <= at:
            target = self.by_offset.get(each.argval)
            if target is None or target.opname != "FOR_ITER":
                self._refuse("it has a `while` loop", at)

    def _identity(self, place: int, at: int) -> None:
        """Notes the right operand of `is` if it is a name; otherwise it must be a constant."""
        attributes: list[str] = []
        # A jump target between the operand and `is` means that the operand may be another one.
        while place > 0 and not self.instructions[place].is_jump_target:
            place -= 1
            before = self.instructions[place]
            if before.opname == "LOAD_CONST" and not attributes:
                if before.argval is None or isinstance(before.argval, bool):
                    return
                break
            if before.opname == "LOAD_ATTR":
                attributes.insert(0, before.argval)
                continue
            is_outer = before.argval not in self.code.co_cellvars
            if before.opname == "LOAD_GLOBAL" or (before.opname == "LOAD_DEREF" and is_outer):
                self.found.identities.append(((before.argval, *attributes), self.code, at))
                return
            break
        self._refuse(
            "`is` compares with a value other than None, True, False or a member of an enum", at
        )

    def _only_in(self) -> set[int]:
        """The numbers of the constants that occur only on the right of `in`."""
        used: dict[int, bool] = {}
        for each, after in zip(self.instructions, self.instructions[1:], strict=False):
            if each.opcode in dis.hasconst and each.arg is not None:
                is_in = each.opname == "LOAD_CONST" and after.opname == "CONTAINS_OP"
                used[each.arg] = used.get(each.arg, True) and is_in
        return {number for number, is_in in used.items() if is_in}

    def _constant(self, number: int) -> Any:
        constant = self.code.co_consts[number]
        if isinstance(constant, CodeType):
            return self._inner(constant)
        if isinstance(constant, frozenset) or (type(constant) is tuple and number in self.only_in):
            return to_run_constant(constant)
        return constant

    def _inner(self, code: CodeType) -> CodeType:
        inner = _CodeAnalyzer(code, is_inner=True).analysis()
        self.found.names |= inner.names
        self.found.identities += inner.identities
        self.found.tests_identity = self.found.tests_identity or inner.tests_identity
        self.found.has_handlers = self.found.has_handlers or inner.has_handlers
        self.found.is_live = self.found.is_live or inner.is_live
        self.found.refusal = self.found.refusal or inner.refusal
        return inner.copy or code

    def _refuse(self, reason: str, at: int) -> None:
        if self.found.refusal is None:
            self.found.refusal = (reason, self.code, at)
