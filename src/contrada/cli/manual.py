"""`contrada help`: the pages of the documentation, which the package brings along."""

import sys
from pathlib import Path

import click

import contrada


def page_of(topic: str) -> str:
    """Returns a page as Markdown. Raises click.UsageError for an unknown topic."""
    pages = _pages()
    if topic not in pages:
        raise click.UsageError(f"no page {topic!r}; there are: {', '.join(sorted(pages))}")
    return pages[topic].read_text("utf-8")


def _pages() -> dict[str, Path]:
    """Returns the file of each topic: of the installed package, or of a checkout."""
    package = Path(contrada.__file__).parent
    folders = (package / "docs", package.parents[1] / "docs")
    return {path.stem: path for path in next(filter(Path.is_dir, folders)).glob("*.md")}


@click.command()
@click.argument("topic", required=False, metavar="[TOPIC]")
@click.pass_context
def manual(ctx: click.Context, topic: str | None) -> None:
    """Print a page of the documentation, or the options of a command.

    Without TOPIC, print the list of pages.

    \b
    contrada help
    contrada help delivery
    contrada help filters | less
    """  # noqa: D301 - click reads the escape
    assert ctx.parent is not None
    group = ctx.parent.command
    assert isinstance(group, click.Group)
    if topic is not None and topic not in _pages():
        command = group.get_command(ctx.parent, topic)
        if command is not None:
            with click.Context(command, info_name=topic, parent=ctx.parent) as shown:
                click.echo(command.get_help(shown))
            return
    text = page_of("index" if topic is None else topic)
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        console = Console()
        with console.pager(styles=True):
            console.print(Markdown(text, hyperlinks=False))
    else:
        click.echo(text, nl=False)
