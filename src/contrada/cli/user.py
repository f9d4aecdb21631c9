"""`contrada user`: the users of a broker and their permissions, in a TOML file."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import tomlkit
from msgspec import structs

from contrada.cli import shared_options as options
from contrada.cli.table_output import output, table
from contrada.cli.user_may import may
from contrada.cli.users_file import (
    changing,
    check_there,
    read_users,
    time_of,
    token_file_option,
    users_option,
    write_anew,
    write_with_token,
)
from contrada.errors import InputError
from contrada.net.broker.users import UserFile, Users, UserSettings
from contrada.net.wire.tokens import new_token
from contrada.service.security.principals import Quotas
from contrada.service.settings import checked

IN_FORCE: Final = "in force once brokers read the file again: at SIGHUP (systemctl reload contrada)"
"""Remark after a removal, or a new token: the user may still be connected."""


@click.group()
def user() -> None:
    """Manage the users of a broker and their permissions.

    A broker reads the file with `contrada serve --users FILE`, and again at SIGHUP. Filters give
    the permissions to publish and to subscribe; everything else is refused.

    \b
    contrada user add desk --publish "symbol any" --subscribe "price < 100"
    contrada user list
    contrada user token desk --old-until 7d
    contrada user quota desk --connections 10
    contrada user may desk publish symbol=DIS price=61.5
    contrada user remove desk
    """  # noqa: D301 - click reads the escape


user.add_command(may)


@user.command()
@click.argument("name")
@users_option
@options.repeated("--publish", "FILTER", "Filter of permitted publications. Repeatable.")
@options.repeated("--subscribe", "FILTER", "Filter of permitted subscriptions. Repeatable.")
@options.repeated("--group groups", "NAME", "Group whose rights the user has too. Repeatable.")
@options.flag("--everything", "Permit all publications and subscriptions.")
@options.repeated(
    "--publisher publishers",
    "NAME",
    "Permitted publisher name, with the names below it; * is any. Default: the user's name.",
)
@options.repeated("--durable", "NAME", "Permitted name of durable subscriptions, likewise.")
@options.flag(
    "--narrow", "Grant the permitted part of a wider subscription instead of refusing it."
)
@options.flag("--link", "Permit to link as a neighbour.")
@options.flag("--inspect", "Permit to inspect the state and counters of a broker.")
@options.flag("--sinks", "Permit subscriptions that push events to sinks over HTTP.")
@options.flag("--no-block", "Have no publisher wait for the user's readers: drop the oldest.")
@options.text(
    "--certificate",
    "NAME",
    "Identify the user by this name in a certificate of the broker's authority, without a token.",
    default="",
)
@options.text(
    "--jwt",
    "SUBJECT",
    "Identify the user by this subject in tokens of the broker's issuer, without a token here.",
    default="",
)
@options.text("--expires", "TIME", "End of the user: 2027-01-31T00:00:00Z, 12h, 30d, 8w.")
@options.flag("--replace", "Replace an existing user, with a new token; quotas stay.")
@token_file_option
def add(
    name: str, path: str, everything: bool, replace: bool, token_file: str | None, **given: Any
) -> None:
    """Add a user, and print the token. It is stored nowhere and cannot be printed again.

    The user `anonymous` represents clients without identity, and has no token.

    \b
    contrada user add desk --publish "symbol any" --subscribe "price < 100" --token-file desk.token
    contrada sub --to contradas://broker.example --token-file desk.token "price < 50"
    contrada user add oslo --everything --publisher '*' --durable '*' --link --inspect
    contrada user add anonymous --subscribe "public = true"
    """  # noqa: D301 - click reads the escape
    if everything and (given["publish"] or given["subscribe"]):
        raise click.UsageError("--everything includes --publish and --subscribe")
    has_token = not (given["certificate"] or given["jwt"]) and name != "anonymous"
    if token_file is not None and not has_token:
        raise click.UsageError(f"--token-file: the user {name!r} gets no token")
    token, record = new_token(name) if has_token else ("", "")
    expires = None if given["expires"] is None else time_of("--expires", given["expires"])
    settings = UserSettings(
        token=record,
        groups=[*given["groups"]],
        publish=everything or [*given["publish"]],
        subscribe=everything or [*given["subscribe"]],
        publishers=[*given["publishers"]] or None,
        durable=[*given["durable"]] or None,
        block=not given["no_block"],
        expires=expires,
        **{key: given[key] for key in ("certificate", "jwt", "narrow", "link", "inspect", "sinks")},
    )
    with changing(Path(path)) as file:
        document, known = (
            read_users(file) if file.exists() else (tomlkit.document(), UserFile({}, {}))
        )
        if name in known.users and not replace:
            reason = f"there is a user {name!r} already: --replace gives them a new token"
            raise InputError(path, reason)
        if name in known.users:  # Only `user quota` changes them.
            settings = structs.replace(settings, quota=known.users[name].quota)
        Users.of(path, {**known.users, name: settings}, known.groups)
        users = document.setdefault("users", tomlkit.table(is_super_table=True))
        users[name] = tomlkit.item(msgspec.to_builtins(settings, builtin_types=(datetime,)))
        write_with_token(file, tomlkit.dumps(document), token, token_file)
    if token and token_file is None:
        click.echo(token)


@user.command(name="list")
@users_option
@options.flag("--json as_json", "One JSON object per line, without tokens.")
def list_(path: str, as_json: bool) -> None:
    """List the users of a file, and their permissions."""
    _, known = read_users(Path(path))
    Users.of(path, *known)
    if as_json:
        for name, each in known.users.items():
            kept = {key: "kept" for key in ("token", "old_token") if getattr(each, key)}
            shown = msgspec.to_builtins(structs.replace(each, **kept))
            click.echo(msgspec.json.encode({"name": name, **shown}))
        return
    made = table(*("user", "shows", "publishes", "reads", "besides"), box=None)
    for name, each in known.users.items():
        made.add_row(name, *_shown(each))
    output().print(made)


@user.command()
@click.argument("name")
@users_option
def remove(name: str, path: str) -> None:
    """Remove a user. Connections of the user end when brokers read the file again, at SIGHUP.

    `systemctl reload` sends SIGHUP to a broker that is a service.
    """
    with changing(Path(path)) as file:
        document, known = read_users(file)
        check_there(path, "user", known.users, name)
        del document["users"][name]
        write_anew(file, tomlkit.dumps(document))
    click.echo(IN_FORCE, err=True)


@user.command()
@click.argument("name")
@users_option
@options.text("--old-until", "TIME", "End of the old token: 2027-01-31T00:00:00Z, 12h, 30d, 8w.")
@options.flag("--withdraw", "End the old token now; no new one is made.")
@token_file_option
def token(
    name: str, path: str, old_until: str | None, withdraw: bool, token_file: str | None
) -> None:
    """Give a user a new token beside the old one, and print it.

    Both are valid until --old-until, or until the old one is withdrawn. Connections with the old
    token end with it; others stay.

    \b
    contrada user token desk --old-until 7d --token-file desk-new.token
    contrada user token desk --withdraw
    """  # noqa: D301 - click reads the escape
    if withdraw and (old_until is not None or token_file is not None):
        raise click.UsageError("--withdraw makes no new token, so it is given alone")
    ends = None if old_until is None else time_of("--old-until", old_until)
    with changing(Path(path)) as file:
        document, known = read_users(file)
        check_there(path, "user", known.users, name)
        settings, table = known.users[name], document["users"][name]
        is_replacing = settings.old_token and not _is_over(settings.old_token_ends)
        if withdraw and not settings.old_token:
            raise InputError(path, f"the user {name!r} has no old token")
        if not withdraw and not settings.token:
            raise InputError(path, f"the user {name!r} has no token that could be replaced")
        if not withdraw and is_replacing:
            reason = f"the user {name!r} has two valid tokens: end the old one by --withdraw first"
            raise InputError(path, reason)
        for key in ("old_token", "old_token_ends"):
            table.pop(key, None)
        if withdraw:
            write_anew(file, tomlkit.dumps(document))
        else:
            made, record = new_token(name)
            table |= {"token": record, "old_token": settings.token}
            if ends is not None:
                table["old_token_ends"] = ends
            write_with_token(file, tomlkit.dumps(document), made, token_file)
            if token_file is None:
                click.echo(made)
    click.echo(IN_FORCE, err=True)


def _count_or_none(_: click.Context, __: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == "none":
        return value
    if not (value.isascii() and value.isdecimal()):
        raise click.BadParameter(f"found {value!r}, expected a number, or none")
    return int(value)


def _quota(option: str, help_text: str) -> Callable[..., Any]:
    return click.option(option, metavar="N", callback=_count_or_none, help=help_text)


@user.command()
@click.argument("name")
@users_option
@options.flag("--group is_group", "NAME is a group: its users get the quotas, each for itself.")
@_quota("--connections", "Connections.")
@_quota("--subscriptions", "Subscriptions, patterns and readers of durable subscriptions.")
@_quota("--durable-subscriptions", "Durable subscriptions of the user's own names.")
@_quota("--kept-bytes", "Bytes that these may keep together, by their retentions.")
@_quota("--notifications-per-s", "Published notifications a second; more are delayed.")
@_quota("--bytes-per-s", "Bytes of these; more are delayed.")
def quota(name: str, path: str, is_group: bool, **given: int | str | None) -> None:
    """Set quotas of a user or group, or print them. N is a number, or none for no quota.

    They hold at each broker by itself. A user's own quota comes before that of its groups. What
    exists beyond a lowered quota stays. `contrada stats` shows the use.

    \b
    contrada user quota desk --connections 10 --notifications-per-s 1000
    contrada user quota desk --kept-bytes none
    contrada user quota device --group --connections 1
    """  # noqa: D301 - click reads the escape
    kind = "groups" if is_group else "users"
    with changing(Path(path)) as file:
        document, known = read_users(file)
        settings = known.groups if is_group else known.users
        check_there(path, "group" if is_group else "user", settings, name)
        wanted = {key: value for key, value in given.items() if value is not None}
        if not wanted:
            users = Users.of(path, *known).principals
            found = known.groups[name].quota if is_group else users[name].quotas
            for key, most in found.limits().items():
                click.echo(f"{key} {most}")
            return
        own = settings[name].quota.limits()
        limits = {key: most for key, most in {**own, **wanted}.items() if most != "none"}
        checked(f"{kind}.{name}.quota", limits, Quotas)
        document[kind][name]["quota"] = limits
        write_anew(file, tomlkit.dumps(document))
    click.echo(IN_FORCE, err=True)


def _is_over(time: datetime | None) -> bool:
    return time is not None and time <= datetime.now(UTC)


def _shown(settings: UserSettings) -> Sequence[str]:
    kinds = {"certificate": settings.certificate, "jwt": settings.jwt, "token": settings.token}
    shows = next((kind for kind, shown in kinds.items() if shown), "nothing")
    if settings.old_token and not _is_over(settings.old_token_ends):
        shows = "two tokens"
    besides = [
        *(f"in {each}" for each in settings.groups),
        *(f"{quota} {most:,}" for quota, most in settings.quota.limits().items()),
        *(f"as {each}" for each in settings.publishers or ()),
        *(f"durable {each}" for each in settings.durable or ()),
        *(key for key in ("narrow", "link", "inspect", "sinks") if getattr(settings, key)),
        *([] if settings.block else ["no block"]),
        *([f"until {settings.expires.isoformat()}"] if settings.expires else []),
    ]
    return shows, _filters(settings.publish), _filters(settings.subscribe), ", ".join(besides)


def _filters(permitted: bool | str | list[str]) -> str:
    if isinstance(permitted, bool):
        return "everything" if permitted else "nothing"
    return " or ".join([permitted] if isinstance(permitted, str) else permitted) or "nothing"
