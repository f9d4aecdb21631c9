"""`RuleAlerts`: the rules of a dialect as one subscription, and the alerts of a notification.

One subscription asks for what any rule's filters match. An index of the rules, with their residues,
then decides which rules a notification matches.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from contrada.cli import shared_options as options
from contrada.cli.notification_output import parts_of
from contrada.errors import InputError
from contrada.integrations.dialects.correlation_matcher import CorrelationMatcher
from contrada.integrations.files import plain_time
from contrada.integrations.files.record import correlation_object, match_object
from contrada.integrations.files.record_matcher import RecordFilter
from contrada.integrations.files.subscription_files import (
    WITH_CORRELATIONS,
    about_of,
    load_all_rules,
)
from contrada.matching.index import Index
from contrada.model import FilterSet, Notification
from contrada.model.rule import CorrelationRule, Rule
from contrada.service.clock import wall_clock_us


def sigma_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of Sigma's rules to a command with a `dialect`, which gets them as `rules`,
    the options of the reader. Raises UsageError for options of Sigma with another dialect, and
    InputError for an unreadable pipeline.
    """

    @wraps(command)
    def run(*, keywords: tuple[str, ...], pipelines: tuple[str, ...], **given: Any) -> None:
        check_options(given["dialect"], {"keywords": keywords, "pipeline": pipelines}, "sigma")
        rules: dict[str, Any] = {"keywords": keywords} if keywords else {}
        if pipelines:
            from contrada.integrations.dialects.sigma import load_pipeline

            rules["pipelines"] = tuple(map(load_pipeline, pipelines))
        command(rules=rules, **given)

    return options.joined(
        options.repeated(
            "--keywords", "NAME", "sigma: attribute in which keywords are searched; repeatable."
        ),
        options.repeated(
            "--pipeline pipelines",
            "FILE",
            "sigma: pipeline of pySigma, `windows` (the default) or `windows-audit`; repeatable.",
        ),
    )(run)


def check_options(dialect: str | None, given: Mapping[str, object], only: str) -> None:
    """Raises UsageError for an option of another dialect."""
    for name, value in given.items():
        if value and dialect != only:
            raise click.UsageError(f"--{name} is for {only} only")


def report_rules(
    place: Path, dialect: str, **given: Any
) -> tuple[dict[str, Rule], dict[str, CorrelationRule], bool]:
    """Returns the rules and the correlations by name, and whether some were refused; reports these.
    `given` are the options of the reader.
    """
    found, refused = load_all_rules(place, WITH_CORRELATIONS[dialect], **given)
    for each in refused:
        click.echo(each, err=True)
    if refused:
        click.echo(f"{len(refused)} refused of {len(refused) + len(found)} rules", err=True)
    rules = {name: rule for name, rule in found.items() if isinstance(rule, Rule)}
    others = {name: rule for name, rule in found.items() if isinstance(rule, CorrelationRule)}
    return rules, others, bool(refused)


def heading_of(name: str, asked: RecordFilter | CorrelationRule) -> tuple[str, str]:
    """Returns the title and the level of a rule: its name and "" without them."""
    about = about_of(asked) if isinstance(asked, Rule | CorrelationRule) else {}
    return str(about.get("title", name)), str(about.get("level", ""))


class RuleAlerts:
    """The rules of a file or a directory, as one subscription. Raises InputError without any."""

    def __init__(self, place: Path, dialect: str, **given: Any) -> None:
        self._rules, self._correlations, _ = report_rules(place, dialect, **given)
        if not self._rules and not self._correlations:
            raise InputError(str(place), f"found no rule of {dialect} that can be read")
        self._index: Index[str] = Index()
        for name, rule in self._rules.items():
            self._index.add(name, rule)
        self._matcher = CorrelationMatcher(self._correlations)
        asked = [rule.filters for rule in self._rules.values()]
        asked += [rule.asked for rule in self._correlations.values()]
        self.filters = FilterSet(asked)

    def lines(self, notification: Notification, *, as_json: bool) -> Iterator[str]:
        """Yields a line for each rule that the notification matches, in the order of the rules,
        then one for each correlation that it completes.
        """
        matching = set(self._index.match(notification))
        for name in filter(matching.__contains__, self._rules):
            if as_json:
                found = match_object(name, about_of(self._rules[name]), notification)
                yield msgspec.json.encode(found).decode()
            else:
                yield _line(name, self._rules[name], notification)
        for name, events in self._matcher.push(notification, wall_clock_us()):
            about = about_of(self._correlations[name])
            if as_json:
                yield msgspec.json.encode(correlation_object(name, about, events)).decode()
            else:
                number = f"{len(events)} events, the last:"
                yield _line(name, self._correlations[name], events[-1], number)


def _line(name: str, rule: Rule | CorrelationRule, notification: Notification, *more: str) -> str:
    title, level = heading_of(name, rule)
    head = (plain_time(notification) or "", f"[{level}]" if level else "", title)
    named = () if title == name else (f"rule {name}:",)
    return "  ".join([*filter(None, head), *named, *more, *parts_of(notification)])
