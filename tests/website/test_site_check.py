"""The check of a built site."""

from pathlib import Path

from website.site_check import faults


def test_missing_and_foreign_files_are_faults(tmp_path: Path) -> None:
    """A site would need the network, or show a page without its picture or script."""
    (tmp_path / "here.js").touch()
    (tmp_path / "style.css").write_text("@import 'https://fonts.example/a.css';", "utf-8")
    (tmp_path / "index.html").write_text(
        """<html><head><link rel=canonical href=https://docs.example/>
        <link rel=stylesheet href="//fonts.example/a.css"><link rel=icon href=none.svg>
        <script src="./here.js?1"></script><script src="https://cdn.example/a.js"></script></head>
        <body><img src="data:image/png;base64,AA=="><a href="https://a.example/">a</a></body>""",
        "utf-8",
    )
    assert list(faults(tmp_path)) == [
        "index.html: //fonts.example/a.css",
        "index.html: https://cdn.example/a.js",
        "index.html: none.svg",
        "style.css: https://fonts.example/a.css",
    ]
