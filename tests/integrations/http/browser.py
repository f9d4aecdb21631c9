"""A headless browser: `python browser.py ADDRESS PATH` reads an event stream in a page.

It prints the messages of the page's EventSource, a JSON object per line, until it is killed. The
engine is Chromium, from Qt.
"""

import os
import sys

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QTWEBENGINE_CHROMIUM_FLAGS", "--no-sandbox --disable-gpu")

PAGE = """<script>
const source = new EventSource(%r);
const tell = (name, message) =>
    console.log(JSON.stringify({name, id: message.lastEventId || "", data: message.data || ""}));
source.onopen = message => tell("open", message);
source.onmessage = message => tell("message", message);
source.onerror = message => tell("error", message);
source.addEventListener("dropped", message => tell("dropped", message));
</script>"""


def main(address: str, path: str) -> None:
    """Shows the page until the process is killed."""
    from PyQt6.QtCore import QUrl
    from PyQt6.QtWebEngineCore import QWebEnginePage
    from PyQt6.QtWidgets import QApplication

    class Page(QWebEnginePage):
        def javaScriptConsoleMessage(
            self, level: object, message: str | None, line: int, source: str | None
        ) -> None:
            sys.stdout.write(f"{message}\n")
            sys.stdout.flush()

    app = QApplication(sys.argv[:1])
    page = Page()
    page.setHtml(PAGE % path, QUrl(address))
    app.exec()


if __name__ == "__main__":
    main(*sys.argv[1:])
