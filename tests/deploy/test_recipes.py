"""The recipes under deploy/: what their own linters say, and what they promise beyond a schema."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from nonchalant.cli.running import STOP_SECONDS
from nonchalant.config import parse_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
LINTERS = ROOT / ".make" / "linters" / "bin"

# The oldest that has `preStop.sleep` without being asked for it, one in the middle, and the newest that is known.
KUBERNETES_VERSIONS = ("1.30", "1.34", "1.37")
OURS = ("migrate", "node")


def lint(program: str, *arguments: object) -> str:
    """What it says, if it is content."""
    path = LINTERS / program
    assert path.exists(), f"{program} is not installed: run `make install`"
    done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())


def manifests() -> list[tuple[Path, dict[str, Any]]]:
    """All but what only kustomize reads."""
    found = [(path, one) for path in KUBERNETES.rglob("*.yaml") for one in yaml.safe_load_all(path.read_text())]
    return [(path, one) for path, one in found if path.name != "kustomization.yaml"]


def pods() -> list[tuple[str, dict[str, Any]]]:
    kinds = {"Deployment", "Job", "StatefulSet"}
    return [(one["metadata"]["name"], one["spec"]["template"]) for _, one in manifests() if one["kind"] in kinds]


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9.-]+)(?:\[[a-z,]+\])?==([^ ;\\]+)", lock.read_text(), re.MULTILINE))


def seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)s", text)
    assert found
    return float(found[1])


# --- the image ---


def test_hadolint_finds_nothing_in_the_image() -> None:
    lint("hadolint", "--failure-threshold", "style", "deploy/Dockerfile")


def test_hadolint_would_have_found_something(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text((DEPLOY / "Dockerfile").read_text() + "\nRUN apt-get install curl\n")
    with pytest.raises(AssertionError, match="DL30"):
        lint("hadolint", bad)


def test_the_image_runs_as_nobody_needs_no_shell_and_stops_by_sigterm() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    final = text.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.+)$", final, re.MULTILINE) == ["10001:10001"]
    assert re.findall(r"^STOPSIGNAL (.+)$", final, re.MULTILINE) == ["SIGTERM"]
    # In the form with brackets nothing stands between the signal and the node, and nothing needs a shell.
    commands = re.findall(r"^(?: +)?(ENTRYPOINT|CMD) (.*)$", final, re.MULTILINE)
    assert [name for name, _ in commands] == ["CMD", "ENTRYPOINT", "CMD"]
    assert all(command.startswith("[") for _, command in commands)


def test_bases_are_pinned_by_a_full_version() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^ARG PYTHON=3\.\d+\.\d+-slim-\w+$", text, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"python:${PYTHON}"}
    images = {service["image"] for service in compose()["services"].values()} - {"nonchalant"}
    images |= {one["image"] for _, pod in pods() for one in pod["spec"]["containers"]} - {"nonchalant"}
    assert [image for image in images if not re.search(r":\d+\.\d+", image)] == []


def test_the_image_has_what_the_lock_has_and_is_made_by_the_same_uv() -> None:
    ours, all_of_it = pins(DEPLOY / "requirements.lock"), pins(ROOT / "requirements.lock")
    assert len(ours) > 20
    assert {name: version for name, version in ours.items() if all_of_it.get(name) != version} == {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        re.split(r"[<>=\[ ;]", one)[0] for one in [*project["dependencies"], *project["optional-dependencies"]["otel"]]
    ]
    assert [name for name in wanted if name not in ours] == []
    assert {"ruff", "mypy", "pytest", "web3"} & set(ours) == set()
    make, docker = (ROOT / "Makefile").read_text(), (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"^UV_VERSION := (.+)$", make, re.MULTILINE) == re.findall(
        r"^ARG UV_VERSION=(.+)$", docker, re.MULTILINE
    )


def test_all_that_the_image_copies_is_let_through() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert {name for line in copied for name in line.split()} == let_through
    assert [name for name in let_through if not (ROOT / name).exists()] == []


# --- compose ---


def test_the_compose_file_is_one() -> None:
    lint("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "deploy/compose/compose.yaml")


def test_a_wrong_compose_file_would_have_been_found(tmp_path: Path) -> None:
    bad = tmp_path / "compose.yaml"
    bad.write_text("services: { node: { image: x, read_onyl: true } }\n")
    with pytest.raises(AssertionError, match="read_onyl"):
        lint("check-jsonschema", "--builtin-schema", "vendor.compose-spec", bad)


@pytest.mark.parametrize("name", compose()["services"])
def test_every_service_is_hardened(name: str) -> None:
    service = compose()["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] not in ("root", "0")
    assert "privileged" not in service
    if name not in OURS:  # ours have the image's
        assert service["healthcheck"]["test"][0] == "CMD"
    # Secrets come by files: no variable holds one.
    assert [one for one in service.get("environment", {}) if "PASSWORD" in one and not one.endswith("_FILE")] == []


def test_three_nodes_start_after_the_schema_and_have_time_to_stop() -> None:
    services = compose()["services"]
    node = services["node"]
    assert node["deploy"]["replicas"] == 3
    assert node["depends_on"] == {
        "postgres": {"condition": "service_healthy"},
        "migrate": {"condition": "service_completed_successfully"},
    }
    assert seconds(node["stop_grace_period"]) > STOP_SECONDS + 5
    assert seconds(services["balancer"]["stop_grace_period"]) > STOP_SECONDS
    assert services["migrate"]["command"][:2] == ["db", "migrate"]
    # The server is reached by nodes only, and only the balancer from outside, on loopback.
    assert services["postgres"]["networks"] == ["store"]
    assert compose()["networks"]["store"]["internal"]
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert list(ports) == ["balancer"]
    assert ports["balancer"][0].startswith("127.0.0.1:")


def test_all_files_that_compose_names_are_there_or_made() -> None:
    document = compose()
    example = {"nonchalant.toml": "nonchalant.example.toml"}
    for one in document["configs"].values():
        name = one["file"].removeprefix("./")
        assert (DEPLOY / "compose" / example.get(name, name)).exists()
    script = (DEPLOY / "compose" / "make-secrets").read_text()
    assert [one for one in document["secrets"].values() if one["file"].removeprefix("./") not in script] == []
    used = {name for service in document["services"].values() for name in service.get("secrets", ())}
    assert used == set(document["secrets"])


def test_secrets_are_made_once_and_for_their_owner_only(tmp_path: Path) -> None:
    script = tmp_path / "make-secrets"
    script.write_text((DEPLOY / "compose" / "make-secrets").read_text().replace("chown 10001:10001", "true"))
    script.chmod(0o755)
    subprocess.run([script], input="0xkey\n", text=True, check=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert made["relayer_key"] == "0xkey\n"
    assert re.fullmatch(r"[0-9a-f]{48}", made["postgres_password"])
    assert made["pgpass"] == f"*:*:nonchalant:nonchalant:{made['postgres_password']}\n"
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert {(tmp_path / "secrets" / name).stat().st_mode & 0o777 for name in ("pgpass", "relayer_key")} == {0o400}
    subprocess.run([script], input="another\n", text=True, check=True)
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made


# --- Kubernetes ---


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_the_manifests_are_what_kubernetes_takes(version: str) -> None:
    files = sorted({path for path, one in manifests() if one["apiVersion"] != "monitoring.coreos.com/v1"})
    said = lint("kubernetes-validate", "--strict", "-k", version, *files)
    assert said.count("passed") == len([one for path, one in manifests() if path in files]) > 8


def test_a_wrong_manifest_would_have_been_found(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        (KUBERNETES / "base" / "deployment.yaml").read_text().replace("readOnlyRootFilesystem", "readOnlyRoot")
    )
    with pytest.raises(AssertionError, match="readOnlyRoot"):
        lint("kubernetes-validate", "--strict", bad)


@pytest.mark.parametrize(("name", "pod"), pods(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_pod_is_restricted(name: str, pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]) == {"requests", "limits"}


def test_nodes_are_probed_spread_and_have_time_to_stop() -> None:
    [spec] = [pod["spec"] for name, pod in pods() if name == "nonchalant"]
    [node] = spec["containers"]
    assert node["livenessProbe"]["httpGet"]["path"] == node["startupProbe"]["httpGet"]["path"] == "/livez"
    assert node["readinessProbe"]["httpGet"]["path"] == "/readyz"
    pause = node["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] > pause + STOP_SECONDS + 5
    assert {one["topologyKey"] for one in spec["topologySpreadConstraints"]} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    [deployment] = [one for _, one in manifests() if one["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 3


def test_every_selector_finds_its_pods() -> None:
    labels = [pod["metadata"]["labels"] for _, pod in pods()]
    for _, one in manifests():
        if one["kind"] in ("Service", "PodDisruptionBudget", "Deployment", "StatefulSet"):
            selector = one["spec"]["selector"]
            wanted = selector.get("matchLabels", selector)
            assert any(wanted.items() <= has.items() for has in labels), one["metadata"]["name"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, which renders kustomizations, is not here")
def test_what_kustomize_renders_is_what_kubernetes_takes(tmp_path: Path) -> None:
    copy = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, copy)
    shutil.copy(copy / "base" / "nonchalant.example.toml", copy / "base" / "nonchalant.toml")
    done = subprocess.run(["kubectl", "kustomize", copy / "postgres"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(done.stdout)
    objects = list(yaml.safe_load_all(done.stdout))
    assert lint("kubernetes-validate", "--strict", rendered).count("passed") == len(objects)
    [settings] = [one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"]
    pods = [one["spec"]["template"]["spec"] for one in objects if one["kind"] in ("Deployment", "Job")]
    assert [pod["volumes"][0]["configMap"]["name"] for pod in pods] == [settings] * 2
    assert all(one["metadata"].get("namespace") == "nonchalant" for one in objects if one["kind"] != "Namespace")


def test_kustomizations_name_every_manifest_but_the_example() -> None:
    for kustomization in KUBERNETES.rglob("kustomization.yaml"):
        named = set(yaml.safe_load(kustomization.read_text())["resources"])
        there = {path.name for path in kustomization.parent.glob("*.yaml")} - {
            "kustomization.yaml",
            "secret.example.yaml",
        }
        assert {name for name in named if not name.startswith("..")} == there


def test_secrets_that_pods_read_are_in_the_example() -> None:
    example = yaml.safe_load((KUBERNETES / "base" / "secret.example.yaml").read_text())
    read = {
        (entry["valueFrom"]["secretKeyRef"]["name"], entry["valueFrom"]["secretKeyRef"]["key"])
        for _, pod in pods()
        for container in pod["spec"]["containers"]
        for entry in container["env"]
        if "valueFrom" in entry
    }
    assert read == {(example["metadata"]["name"], key) for key in example["stringData"]}


# --- settings ---


@pytest.mark.parametrize("folder", ["compose", "kubernetes/base"])
def test_the_example_settings_are_good(folder: str, tmp_path: Path) -> None:
    text = (DEPLOY / folder / "nonchalant.example.toml").read_text()
    settings = parse_settings(text, folder=tmp_path, environ={})
    assert settings.listen.port == 8645
    assert not settings.listen.is_loopback
