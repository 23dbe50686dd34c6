"""The manifests for Kubernetes, as far as they can be tried without a cluster (`test_manifests_cluster.py` has one)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from doctor.config.notify_targets import NODE_PARTS

FOLDER = Path(__file__).parents[1] / "doctor" / "docs" / "kubernetes"
FOLDERS = sorted(path.parent for path in FOLDER.rglob("kustomization.yaml"))
ON_REQUEST = {"gate/open.yaml", "gate/closed.yaml", "idle/nvidia.yaml", "idle/ascend.yaml"}
"""Patches for those who need them, which no kustomization names."""
IDS = [folder.name for folder in FOLDERS]


def documents(path: Path) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all(path.read_text("utf-8")) if item]


def objects() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(FOLDER.rglob("*.yaml")):
        for item in documents(path):
            if "kind" in item and item["kind"] != "Kustomization":
                yield path.relative_to(FOLDER).as_posix(), item


def pod_specs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, item in objects():
        spec = item.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield f"{name}/{item['metadata']['name']}", spec["template"]["spec"]


PODS = dict(pod_specs())
WHOLE_PODS = {name: spec for name, spec in PODS.items() if "serviceAccountName" in spec}


def test_every_file_is_part_of_a_kustomization() -> None:
    named = set(ON_REQUEST)
    for folder in FOLDERS:
        (item,) = documents(folder / "kustomization.yaml")
        files = [*item.get("resources", ()), *item.get("patchesStrategicMerge", ())]
        files += [name for made in item.get("configMapGenerator", ()) for name in made.get("files", ())]
        for base in item.get("bases", ()):
            assert (folder / base / "kustomization.yaml").is_file()
        for name in files:
            assert (folder / name).is_file(), (folder, name)
        named |= {f"{folder.name}/{name}" for name in [*files, "kustomization.yaml"]}
    assert named == {f"{path.parent.name}/{path.name}" for path in FOLDER.rglob("*") if path.is_file()}


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("folder", FOLDERS, ids=IDS)
def test_kubectl_renders_it(folder: Path) -> None:
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    items = [item for item in yaml.safe_load_all(done.stdout) if item]
    assert items
    maps = {item["metadata"]["name"] for item in items if item["kind"] == "ConfigMap"}
    text = json.dumps(items)
    assert all(text.count(name) > 1 or "plugin" in name for name in maps), "a ConfigMap that no pod reads"


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("part", ["base", "overlays/host", "overlays/gate"])
def test_the_lines_of_the_page_name_the_image_of_the_site(part: str, tmp_path: Path) -> None:
    """As they stand there, but for the last word, since no cluster is there."""
    page = (FOLDER.parent / "manifests.md").read_text("utf-8")
    (lines,) = re.findall(r"```sh\n(cp -r .*?)```", page, re.DOTALL)
    lines = lines.replace("[base]", f"[{part}]").replace("kubectl apply -k", "kubectl kustomize")
    lines = lines.replace("python3", sys.executable)
    environ = {**os.environ, "PYTHONPATH": str(FOLDER.parents[2])}
    done = subprocess.run(["sh", "-ec", lines], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    images = re.findall(r"image: (\S+)", done.stdout)
    assert images and set(images) == {"registry.of.my.site/cluster-doctor:0.1.0"}, images


@pytest.mark.parametrize("name", WHOLE_PODS)
def test_a_pod_has_no_more_rights_than_it_needs(name: str) -> None:
    spec = WHOLE_PODS[name]
    context = spec["securityContext"]
    assert context["runAsNonRoot"] and context["runAsUser"] and context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec.get("hostPID") and not spec.get("hostIPC")
    for container in spec["containers"]:
        inside = container["securityContext"]
        assert inside["readOnlyRootFilesystem"] and inside["allowPrivilegeEscalation"] is False
        assert inside["capabilities"] == {"drop": ["ALL"]} and "privileged" not in inside
        assert "memory" in container["resources"]["limits"] and "cpu" not in container["resources"]["limits"]
        assert container["image"].startswith("registry.example.org/")


def test_a_pod_that_runs_as_root_says_why() -> None:
    as_root = [name for name, spec in PODS.items() if spec.get("securityContext", {}).get("runAsUser") == 0]
    assert as_root == ["overlays/host/privileged.yaml/nodes", "overlays/prometheus/metrics.yaml/nodes"]


def test_rights_are_few_and_named() -> None:
    most = {"get", "list", "patch", "create", "delete"}
    for name, item in objects():
        for rule in item.get("rules", ()):
            assert set(rule["verbs"]) <= most and "*" not in [*rule["resources"], *rule["apiGroups"]], name
            assert "secrets" not in rule["resources"] and "nodes/proxy" not in rule["resources"], name


def test_settings_name_what_can_be_written() -> None:
    parts = [
        text.partition("=")[2].split(",")
        for folder in FOLDERS
        for item in documents(folder / "kustomization.yaml")
        for made in item.get("configMapGenerator", ())
        for text in made.get("literals", ())
        if text.startswith("REPORT_TO=")
    ]
    assert len(parts) >= 3 and all(set(names) <= set(NODE_PARTS) for names in parts)
    assert "label" not in parts[0] and "taint" not in parts[0]  # of the base: only on request


def test_the_script_of_the_nodes_runs_and_ends_when_it_is_ended(tmp_path: Path) -> None:
    """Its doctor is the real one, with one check; no API server is there, and that is one line."""
    (script,) = PODS["base/nodes.yaml/nodes"]["containers"][0]["args"]
    program = tmp_path / "doctor"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m doctor "$@"\n')
    program.chmod(0o755)
    settings = {
        "NODE_NAME": "node1",
        "REPORT_TO": "condition",
        "INTERVAL": "600",
        "IGNORE": "ranks,shm-too-small",
        "OPTIONS": "--brief -s kernel",
    }
    environ = {**os.environ, **settings, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    environ.pop("KUBERNETES_SERVICE_HOST", None)
    running = subprocess.Popen(
        ["sh", "-c", script], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stderr and running.stdout
    line = running.stderr.readline()
    assert line == "doctor: --notify kubernetes: not sent: this process is in no pod of Kubernetes\n"
    running.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert running.wait(60) == 0
    assert time.monotonic() - began < 50  # INTERVAL would be ten minutes
    running.stdout.close()
    running.stderr.close()


class TestProblemDetector:
    """Its custom plugins: pkg/custompluginmonitor, types/config.go and plugin/plugin.go."""

    SETTINGS = json.loads((FOLDER / "overlays" / "problem-detector" / "cluster-doctor.json").read_text("utf-8"))

    def test_the_condition_of_the_rule_is_declared(self) -> None:
        (rule,) = self.SETTINGS["rules"]
        assert rule["condition"] in [item["type"] for item in self.SETTINGS["conditions"]]

    def test_it_ends_before_it_is_ended(self) -> None:
        (rule,) = self.SETTINGS["rules"]
        budget = rule["args"][rule["args"].index("--budget") + 1]
        assert int(budget.rstrip("s")) < int(rule["timeout"].rstrip("s"))

    def test_its_line_is_short_and_its_exit_code_one_of_three(self) -> None:
        (rule,) = self.SETTINGS["rules"]
        argv = [sys.executable, "-m", "doctor", *rule["args"], "--select", "kernel"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
        assert done.returncode in (0, 1, 2) and done.stdout.count("\n") == 1
        assert len(done.stdout) <= 81 and done.stdout.split()[0].rstrip(":") in ("OK", "WARN", "FAIL", "UNKNOWN")
