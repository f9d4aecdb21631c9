"""The Helm chart: its settings are options of the broker, and its pods become a network."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_compose import option_variables
from tests.deploy.test_deploy import DEPLOY

CHART = DEPLOY / "helm"
TEMPLATES = "".join(it.read_text("utf-8") for it in sorted((CHART / "templates").iterdir()))
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))

needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")


def test_settings_are_options_of_the_command() -> None:
    """A misspelled setting would be ignored: a broker without users, or TLS."""
    used = set(re.findall(r"CONTRADA_SERVE_[A-Z_]+(?=[,=]| CON)", TEMPLATES))
    assert len(used) >= 10
    assert used <= option_variables()
    assert {f"CONTRADA_SERVE_{name}" for name in VALUES["settings"]} <= option_variables()


def test_every_value_has_a_default() -> None:
    """A template would render nothing where a value is missing."""
    for path in set(re.findall(r"\.Values\.([\w.]+)", TEMPLATES)):
        found = VALUES
        for name in path.split("."):
            assert name in found, path
            found = found[name]


def rendered(*settings: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the objects of the chart, by kind and name."""
    command = ["helm", "template", "news", str(CHART)]
    command += [part for each in settings for part in ("--set", each)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@needs_helm
def test_the_chart_renders_a_broker_with_its_store_and_probes() -> None:
    """An installation would be refused, or a pod start without its store or secrets."""
    subprocess.run(["helm", "lint", "--strict", str(CHART)], check=True, capture_output=True)
    objects = rendered("limits.BROKER_CONNECTIONS_MAX=500", "storage.className=fast")
    assert {*objects} == {("StatefulSet", "news"), ("Service", "news"), ("Service", "news-brokers")}
    spec = objects["StatefulSet", "news"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables["CONTRADA_LIMITS_BROKER_CONNECTIONS_MAX"] == "500"
    assert "CONTRADA_SERVE_TOKEN_FILE" not in variables, "one broker has no neighbours"
    (claim,) = spec["volumeClaimTemplates"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    volumes = {each["name"] for each in pod["volumes"]} | {claim["metadata"]["name"]}
    assert {*mounts} == volumes
    assert claim["spec"]["storageClassName"] == "fast"
    for path in (each for each in variables.values() if each.startswith("/")):
        assert any(path.startswith(f"{each}/") for each in mounts.values()), path
    ports = {each["name"] for each in container["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    for service in (objects["Service", "news"], objects["Service", "news-brokers"]):
        assert service["spec"]["selector"] == spec["selector"]["matchLabels"]
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert spec["serviceName"] == "news-brokers"


@needs_helm
def test_each_pod_links_to_the_ones_before_it(tmp_path: Path) -> None:
    """Pods would stay alone, or dial themselves."""
    objects = rendered("replicas=3", "serviceMonitor.enabled=true")
    assert {("PodDisruptionBudget", "news"), ("ServiceMonitor", "news")} <= {*objects}
    (container,) = objects["StatefulSet", "news"]["spec"]["template"]["spec"]["containers"]
    shown = tmp_path / "contrada"
    shown.write_text('#!/bin/sh\necho "$@ as $CONTRADA_SERVE_NAME: $CONTRADA_SERVE_NEIGHBOUR"\n')
    shown.chmod(0o755)
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert "CONTRADA_SERVE_TOKEN_FILE" in variables
    said = []
    for number in range(3):
        done = subprocess.run(
            [*container["command"], *container["args"]],
            env={**variables, "HOSTNAME": f"news-{number}", "PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(done.stdout.split())
    one, other = (f"contradas://news-{number}.news-brokers:7655" for number in range(2))
    assert said == [
        ["serve", "as", "news/0:"],
        ["serve", "as", "news/1:", one],
        ["serve", "as", "news/2:", one, other],
    ]
