"""`contrada user may`: whether a broker permits a request, by which rule, and why not.

The answers are those of `Permit`: a broker with this file of users decides by the same code.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import click

from contrada.cli import shared_options as options
from contrada.cli.read_flags import attributes_of
from contrada.cli.users_file import check_there, read_users, users_option
from contrada.errors import InputError, LimitError, NotPermittedError
from contrada.model import Envelope, Filter, FilterSet, Notification, Pattern
from contrada.model.algebra.match_explanation import explain_match
from contrada.model.algebra.relations import witness
from contrada.model.syntax.parser import parse, parse_advertisement, parse_question
from contrada.net.broker.fair_scheduler import request_work
from contrada.net.broker.users import RightsSettings, Users
from contrada.routing.router_messages import alternative
from contrada.service.clock import wall_clock_us
from contrada.service.security.permits import Permit
from contrada.service.security.principals import EVERYTHING, NOTHING, Principal, owns

EXIT_NO: Final = 1
"""Status where the broker would refuse the request."""

_Rights: TypeAlias = Sequence[tuple[str, RightsSettings]]
"""The rights of a user, each with the name of its group; empty for its own."""

_FLAGS: Final = ("link", "inspect", "sinks")
"""The rights without an object."""

_ACTIONS: Final = ("publish", "subscribe", "query", "advertise", "durable", *_FLAGS)


class _PermissionRule(NamedTuple):
    """A filter or a name of one right, with a text that names its group."""

    text: str
    filters: FilterSet
    durable: tuple[str, ...] = ()


@click.command()
@click.argument("name")
@click.argument("action", type=click.Choice(_ACTIONS), metavar="ACTION")
@click.argument("what", nargs=-1, metavar="[OBJECT]...")
@users_option
@options.text("--publisher", "NAME", "Publish under this name; default: one below the user's.")
@options.repeated(
    "--jwt-group jwt_groups", "NAME", "Group in a token from outside with NAME as its subject."
)
@options.extension_option
def may(
    name: str,
    action: str,
    what: tuple[str, ...],
    path: str,
    publisher: str | None,
    jwt_groups: tuple[str, ...],
) -> None:
    """Answer whether a user may do something. Prints the rule, or why not.

    ACTION and OBJECT: `publish` and a notification as NAME=VALUE, `subscribe` and a filter or
    pattern, `query` or `advertise` and a filter, `durable` and the name of a subscription; `link`,
    `inspect` and `sinks` have no object. The broker decides by the same code, exactly for all
    notifications that a filter describes. Quotas are not considered. The status is 1 for no.

    \b
    contrada user may desk publish symbol=DIS price=61.5
    contrada user may desk subscribe "symbol = 'DIS' and price < 50"
    contrada user may desk durable desk/alarms
    """  # noqa: D301 - click reads the escape
    most = 0 if action in _FLAGS else 1
    if action == "publish" and not what:
        raise click.UsageError("publish takes NAME=VALUE, once or several times, found none")
    if action != "publish" and len(what) != most:
        expected = ("no argument", "one argument in quotes")[most]
        raise click.UsageError(f"{action} takes {expected}, found {len(what)}")
    principal, rights = _user(path, name, jwt_groups)
    if principal.expires_us is not None and principal.expires_us <= wall_clock_us():
        _refuse(f"the user {principal.name!r} has expired")
    if action in _FLAGS:
        _answer_flag(principal.name, action, rights, path)
        return
    rules = [*_rules(action, principal, rights)]
    if action == "publish":
        own = principal.speaks_as  # Clients without a name publish below it.
        stated = (own and f"{own}/may") if publisher is None else publisher
        envelope = Envelope("may.1", stated, 1, wall_clock_us())
        asked: Any = Notification(attributes_of(what), envelope=envelope)
    else:
        asked = _READERS[action](what[0])
    permit = Permit(principal)
    try:
        with request_work():
            granted = _granted(action, permit, asked)
    except (NotPermittedError, LimitError) as error:
        _refuse(str(error), *_why_not(action, principal, rules, asked))
    if permit.has_narrowed:
        click.echo(f"in part, narrowed to: {granted}")
    else:
        click.echo(f"yes, by {_deciding_rule(action, principal, rules, asked)}")


def _refuse(*lines: str) -> NoReturn:
    click.echo("no: " + "\n  ".join(lines))
    raise click.exceptions.Exit(EXIT_NO)


def _user(path: str, name: str, jwt_groups: tuple[str, ...]) -> tuple[Principal, _Rights]:
    """Returns a user of the file, or of a token from outside, with its rights and their groups."""
    _, known = read_users(Path(path))
    users = Users.of(path, *known)
    if jwt_groups:
        try:
            name, settings = users.settings_of_jwt(name, jwt_groups)
        except InputError as error:
            _refuse(str(error))
    else:
        check_there(path, "user", known.users, name)
        settings = known.users[name]
    return settings.principal(name, known.groups), [*settings.rights(name, known.groups)]


def _answer_flag(name: str, action: str, rights: _Rights, path: str) -> None:
    """Prints whether a user has a right without an object, and by which group."""
    group = next((group for group, each in rights if getattr(each, action)), None)
    if group is None:
        remedy = f"{action} = true in {path}, of the user or a group, grants it"
        _refuse(f"the user {name!r} does not have the right {action!r}: {remedy}")
    click.echo(f"yes, by {action} = true" + (f" of the group {group}" if group else ""))


def _rules(action: str, principal: Principal, rights: _Rights) -> Iterator[_PermissionRule]:
    if action == "durable":
        for each in principal.durable:
            yield _PermissionRule(f"its name {each!r}", NOTHING, (each,))
        return
    key = "publish" if action in ("publish", "advertise") else "subscribe"
    for group, settings in rights:
        given: bool | str | list[str] = getattr(settings, key)
        origin = f" of the group {group}" if group else ""
        if given is True:
            yield _PermissionRule(f"{key} = true{origin}", EVERYTHING)
        elif given:
            for each in [given] if isinstance(given, str) else given:
                filters = FilterSet(each)
                yield _PermissionRule(f"{key} filter{origin}: {filters}", filters)


def _deciding_rule(
    action: str, principal: Principal, rules: Sequence[_PermissionRule], asked: Any
) -> str:
    """Returns the first rule that permits the request by itself, or all of them."""
    for rule in rules:
        alone = replace(
            principal,
            publish=rule.filters,
            subscribe=rule.filters,
            durable=rule.durable,
            narrows=False,
        )
        with suppress(NotPermittedError, LimitError):
            _granted(action, Permit(alone), asked)
            return rule.text
    return "these together: " + "; ".join(rule.text for rule in rules)


def _granted(action: str, permit: Permit, asked: Any) -> object:
    """Returns the permitted part. Raises NotPermittedError, LimitError."""
    match action:
        case "publish":
            checking = permit.unpublishable((asked,))
            while True:
                try:
                    next(checking)
                except StopIteration as end:
                    if end.value:
                        raise permit.why_unpublishable(asked) from None
                    return asked
        case "subscribe" if isinstance(asked, Pattern):
            return permit.allow_pattern(asked)
        case "subscribe":
            return permit.allow_filters(asked)
        case "query":
            granted = permit.allow_query([alternative(*each) for each in asked])
            return FilterSet([Filter.of_sets(each.query.sides) for each in granted])
        case "advertise":
            return permit.allow_offer(asked)
    permit.check_durable(asked)
    return asked


def _why_not(
    action: str, principal: Principal, rules: Sequence[_PermissionRule], asked: Any
) -> Iterator[str]:
    """Yields the reasons of a no: the rules, and a notification that none of them permits."""
    if action == "publish":
        if owns(principal.publishers, asked.envelope.publisher):
            for rule in rules:
                yield f"{rule.text} {explain_match(rule.filters, asked)}".replace("\n", "\n  ")
        return
    parts: Sequence[Any] = ()
    if action == "query":
        parts = [Filter.of_sets(each.sets) for each in asked]
    elif action == "subscribe":
        parts = asked.filters
    found = (witness(each, but_not=principal.subscribe) for each in parts)
    example = next((each for each in found if each is not None), None)
    if example is not None:
        yield f"for example it would read {dict(example)}, which no rule permits"
    yield from (rule.text for rule in rules)
    if not rules:
        yield "the user has no rule for that"


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "subscribe": parse,
    "query": parse_question,
    "advertise": parse_advertisement,
    "durable": str,
}
