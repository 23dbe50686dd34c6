"""What a release pins, and its bill of materials."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / ".ci/lock.txt").read_text("utf-8")
COMPONENT = {
    "type": "object",
    "required": ["type", "name"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["application", "library"]},
        "bom-ref": {"type": "string", "minLength": 1},
        "name": {"type": "string", "minLength": 1},
        "version": {"type": "string"},
        "purl": {"type": "string", "pattern": r"^pkg:pypi/[a-z0-9-]+@[0-9][A-Za-z0-9.+-]*$"},
        "licenses": {"type": "array"},
        "hashes": {
            "type": "array",
            "uniqueItems": True,
            "items": {
                "type": "object",
                "required": ["alg", "content"],
                "properties": {"alg": {"const": "SHA-256"}, "content": {"pattern": "^[a-f0-9]{64}$"}},
            },
        },
        "properties": {"type": "array", "items": {"type": "object", "required": ["name", "value"]}},
    },
}
SCHEMA = {
    "type": "object",
    "required": ["bomFormat", "specVersion", "version", "metadata", "components", "dependencies"],
    "properties": {
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.5"},
        "version": {"const": 1},
        "metadata": {"type": "object", "properties": {"component": COMPONENT}, "required": ["component"]},
        "components": {"type": "array", "items": {**COMPONENT, "required": ["name", "version", "purl", "hashes"]}},
        "dependencies": {"type": "array", "items": {"type": "object", "required": ["ref"]}},
    },
}
"""The part of CycloneDX 1.5 that the file uses."""


def bill_of_materials(path: Path) -> dict[str, Any]:
    subprocess.run([sys.executable, ".ci/sbom.py", str(path)], cwd=ROOT, check=True, timeout=60)
    return dict(json.loads(path.read_text("utf-8")))


def test_the_bill_of_materials_is_valid_and_complete(tmp_path: Path) -> None:
    bom = bill_of_materials(tmp_path / "one.cdx.json")
    jsonschema.validate(bom, SCHEMA)
    refs = [component["bom-ref"] for component in (bom["metadata"]["component"], *bom["components"])]
    assert len(set(refs)) == len(refs)
    assert [dependency["ref"] for dependency in bom["dependencies"]] == refs
    assert bom["dependencies"][0]["dependsOn"] == refs[1:]
    pins = re.findall(r"^([a-z0-9._-]+)==(\S+)", LOCK, re.M)
    assert [(component["name"], component["version"]) for component in bom["components"]] == pins
    assert sum(len(component["hashes"]) for component in bom["components"]) == LOCK.count("--hash=sha256:")
    bill_of_materials(tmp_path / "two.cdx.json")
    assert (tmp_path / "one.cdx.json").read_bytes() == (tmp_path / "two.cdx.json").read_bytes()


def test_every_dependency_is_pinned_by_name_and_hash_alone() -> None:
    """No registry, file or option stands in it: it installs from wherever the user's pip looks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {re.split(r"[^A-Za-z0-9_-]", text)[0].lower().replace("_", "-") for text in project["dependencies"]}
    assert names <= set(re.findall(r"^([a-z0-9-]+)==", LOCK, re.M))
    lines = [line for line in LOCK.splitlines() if not line.lstrip().startswith(("#", "--hash=sha256:"))]
    assert all(re.match(r"[a-z0-9-]+==[0-9][^\s;]*( ; [^/@]+)? \\$", line) for line in lines), lines
    assert not re.search(r"https?:|file:|@ ", LOCK)


@pytest.mark.parametrize("broken", ["", "a==1", "a==1 \\\n    --hash=md5:0", "a>=1 \\\n    --hash=sha256:" + "0" * 64])
def test_a_lock_without_pins_or_hashes_is_refused(broken: str, tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text(broken)
    code = "import runpy, sys; run = runpy.run_path('.ci/sbom.py'); run['sbom'](open(sys.argv[1]).read(), '1')"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock.txt")], cwd=ROOT, capture_output=True)
    assert b"ValueError" in done.stderr
