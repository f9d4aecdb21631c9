"""The alert rules and the board: they name metrics and labels that a broker has."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from contrada.integrations.dialects import prometheus
from contrada.model.rule import Rule
from contrada.service.dispatcher import DUPLICATE
from contrada.service.subscription_queue import EXPIRED
from tests.asynchronous import on_loop
from tests.deploy.test_deploy import DEPLOY
from tests.integrations.http.conftest import serving

MONITORING = DEPLOY / "monitoring"
RULES: list[dict[str, Any]] = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))[
    "groups"
][0]["rules"]
BOARD: dict[str, Any] = json.loads((MONITORING / "board.json").read_text("utf-8"))

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}


def board_queries() -> list[str]:
    return [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


@on_loop
async def test_a_broker_has_all_metrics_of_rules_and_board() -> None:
    """A panel would stay empty, and an alert never fire, unnoticed until it is needed."""
    async with serving() as it:
        text = (await it.http.get("/metrics")).text
    families = [*text_string_to_metric_families(text)]
    names = {f"{each.name}{end}" for each in families for end in SUFFIXES[each.type]}
    queries = [*(rule["expr"] for rule in RULES), *board_queries()]
    queries.append(BOARD["templating"]["list"][1]["query"]["query"])
    named = {name for query in queries for name in re.findall(r"(?:contrada|process)_\w+", query)}
    assert len(named) > 20
    assert named <= names, named - names
    build = next(each for each in families if each.name == "contrada_build_info").samples[0]
    assert {*build.labels} == {"version", "python", "protocol", "kernels"}
    assert build.labels["version"]


def test_the_harmless_drops_are_those_of_the_broker() -> None:
    """Each ended subscription, or each expired notification, would raise an alert."""
    (rule,) = (each for each in RULES if each["alert"] == "ContradaDropping")
    (reasons,) = re.findall(r'reason!~"([^"]+)"', rule["expr"])
    assert {EXPIRED, DUPLICATE} < {*reasons.split("|")}
    assert {*reasons.split("|")} == {"connection ended", "unsubscribed", EXPIRED, DUPLICATE}


def test_every_panel_has_a_place_and_a_text() -> None:
    """Panels would lie on one another, or a reader not know what they show."""
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in BOARD["panels"]]
    assert len(places) == len(set(places))
    assert all(each["description"] and each["title"] for each in BOARD["panels"])
    assert len({each["id"] for each in BOARD["panels"]}) == len(places)


def test_the_own_reader_reads_the_rules() -> None:
    """The rules could not be used as subscriptions, as docs/dialects.md promises."""
    read = [*prometheus.read_rules((MONITORING / "alerts.yaml").read_text("utf-8"))]
    assert [each.name for each in read] == [each["alert"] for each in RULES]
    assert {each.name for each in read if isinstance(each, Rule)} == {
        *("ContradaDown", "ContradaStoreFailing", "ContradaStuckLog", "ContradaDiskLow"),
        *("ContradaDeliveryFailed", "ContradaDeadLetters"),
    }, "the others have functions, or several metrics"
    (down,) = prometheus.filters(RULES[0]["expr"])
    assert down.matches({"__name__": "up", "job": "contrada", "value": 0})
    assert not down.matches({"__name__": "up", "job": "contrada", "value": 1})


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yaml"),
        ("test", "rules", "alerts_test.yaml"),
        ("check", "config", "--syntax-only", "prometheus.yaml"),
    ],
)
def test_prometheus_accepts_the_rules_and_fires_them(arguments: tuple[str, ...]) -> None:
    """Prometheus would not start, or an alert stay silent at the fault that it is for."""
    command = ["promtool", *arguments]
    done = subprocess.run(command, cwd=MONITORING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_accepts_the_queries_of_the_board(tmp_path: Path) -> None:
    """A panel would show an error."""
    shown = [
        each.replace("$__rate_interval", "5m").replace("$broker", ".*") for each in board_queries()
    ]
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(shown)]
    file = tmp_path / "board.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}), "utf-8")
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
