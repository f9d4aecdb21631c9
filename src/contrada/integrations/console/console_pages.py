"""`console_page` and `console_files`: the pages of the console, which load nothing from elsewhere.

The pages are ES modules in `static/`, with Preact, htm and CodeMirror in one of them. They ask the
HTTP port for everything with the user's token, so they show what that user may see.
"""

import secrets
from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from contrada.integrations.files.subscription_files import DIALECTS
from contrada.model.languages.atoms import KEYWORDS

_STATIC: Final = Path(__file__).parent / "static"

# CodeMirror adds a style sheet of its own to the page, by the nonce.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def _index() -> str:
    page = (_STATIC / "index.html").read_text("utf-8")
    page = page.replace("KEYWORDS", " ".join(sorted(KEYWORDS)))
    return page.replace("DIALECTS", " ".join(DIALECTS))


def console_page() -> Response:
    """Returns the page, with a strict policy about what it may load."""
    nonce = secrets.token_urlsafe(16)
    policy = {"Content-Security-Policy": _POLICY.format(nonce=nonce)}
    return HTMLResponse(_index().replace("NONCE", nonce), headers=_HEADERS | policy)


class ConsoleFiles(StaticFiles):
    """The modules and the style sheet of the page."""

    def __init__(self) -> None:
        super().__init__(directory=_STATIC)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Returns a file. Raises HTTPException, as of another path."""
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response
