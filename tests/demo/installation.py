"""Uses an installation: `python -I tests/demo/installation.py` fails where a part does not work.

`make wheel` and the wheels of cibuildwheel are tried by it. With `-I`, no module of the checkout is
imported in place of the installation's.
"""

import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import contrada as ct
from contrada.cli.manual import page_of

assert "numpy" not in sys.modules, "import contrada imports numpy"
assert "site-packages" in ct.__file__, ct.__file__
index: ct.Index[str] = ct.Index()
index.add("cheap", "price < 100")
assert index.match({"symbol": "DIS", "price": 61.5}) == ["cheap"]
assert index.match({"symbol": "DIS", "price": 161.5}) == []
assert index.statistics().is_compiled, "contrada._native is not in use"
with ct.connect_sync() as service, service.subscribe("price < 100") as events:
    service.publish({"symbol": "DIS", "price": 61.5})
    assert events.next()["symbol"] == "DIS"
assert "certified" in page_of("delivery")
(lexer,) = entry_points(group="pygments.lexers", name="filters")
assert "filters" in lexer.load().aliases
(plugin,) = entry_points(group="pytest11", name="pytest_contrada")
assert find_spec(plugin.value) is not None, "the pytest plugin is not installed"
share = Path(sys.prefix, "share")
for name in ("man/man1/contrada-serve.1", "bash-completion/completions/contrada"):
    assert (share / name).is_file(), name
