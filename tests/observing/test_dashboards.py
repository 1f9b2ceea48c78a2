"""The dashboard and the alerts name only what the catalogue has, and Prometheus' own tool takes them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nonchalant.observing import catalogue
from tests.observing.promql import grouped_by, series_in

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "observability"
GUIDE = (ROOT / "docs" / "how-to" / "watch-it.md").read_text()

LABELS = {name: set(metric.labels) for metric in catalogue.CATALOGUE for name in catalogue.series_of(metric)}
LABELS |= {"up": set()}  # what Prometheus itself tells of a scrape
ANYWHERE = {"job", "instance", "le"}

DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def shown() -> list[str]:
    """Every expression of the dashboard."""
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    found += [one["expr"] for one in DASHBOARD["annotations"]["list"] if "expr" in one]
    asked = [one["definition"] for one in DASHBOARD["templating"]["list"] if "definition" in one]
    return found + [re.sub(r"^label_values\((.*), (\w+)\)$", r"count by (\2) (\1)", one) for one in asked]


def promtool(*arguments: str, folder: Path = FOLDER) -> None:
    installed = ROOT / ".make" / "promtool" / "promtool"
    program = str(installed) if installed.exists() else shutil.which("promtool")
    assert program, "promtool is not installed: run `make promtool`"
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_parser_finds_what_an_expression_names() -> None:
    text = (
        'histogram_quantile(0.9, sum by (le, part) (rate(a_bucket{x="{y}", z=~"b|c"}[5m])))'
        " / on (chain) group_left c_total offset 5m > 1e18 and absent(d)"
    )
    assert sorted(series_in(text)) == [("a_bucket", {"x", "z"}), ("c_total", set()), ("d", set())]
    assert grouped_by(text) == {"le", "part", "chain"}


@pytest.mark.parametrize("expression", [*shown(), *(rule["expr"] for rule in RULES)])
def test_every_metric_and_label_that_is_named_is_in_the_catalogue(expression: str) -> None:
    found = list(series_in(expression))
    assert found
    assert [name for name, _ in found if name not in LABELS] == []
    for name, labels in found:
        assert labels <= LABELS[name] | ANYWHERE, name
    assert grouped_by(expression) <= set.union(*(LABELS[name] for name, _ in found)) | ANYWHERE


def test_everything_that_is_measured_is_shown_or_watched() -> None:
    named = {name for text in [*shown(), *(rule["expr"] for rule in RULES)] for name, _ in series_in(text)}
    unseen = [one.name for one in catalogue.OWN if not named & set(catalogue.series_of(one))]
    assert unseen == []


def test_prometheus_takes_the_alerts_and_the_example() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("check", "config", "prometheus.yml")


def test_the_alerts_come_when_they_should() -> None:
    promtool("test", "rules", "alerts_test.yml")


def test_prometheus_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    filled = [re.sub(r"\$__rate_interval", "1m", one).replace("$chain", "1").replace("$job", "x") for one in shown()]
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(filled)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", "panels.yml", folder=tmp_path)


def test_the_dashboard_is_put_together_as_grafana_expects() -> None:
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= DASHBOARD.keys()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in panels():
        assert panel["type"] in {"timeseries", "stat", "table"}
        assert panel["datasource"]["uid"] == "${datasource}"
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) >= 1
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD["panels"])))
    assert used <= variables


def test_every_alert_says_what_happened_and_the_guide_says_what_to_do() -> None:
    names = [rule["alert"] for rule in RULES]
    for rule in RULES:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"].endswith(".")
    assert re.findall(r"^### (Nonchalant\w+)$", GUIDE, re.MULTILINE) == names
