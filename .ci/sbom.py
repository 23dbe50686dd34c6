"""Writes the software bill of materials of a release (CycloneDX 1.5, JSON): ``python .ci/sbom.py OUT.cdx.json``.

It lists what ``.ci/lock.txt`` pins, with the hashes of every file that pip may install. The same lock and the same
version give the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / ".ci/lock.txt"
PIN = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)[ ]?(?:; (?P<marker>[^\\\n]*?))?[ ]*\\?$"
)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pinned(lock: str) -> list[dict[str, Any]]:
    """A component for each pin. Raises: ValueError for a line that is none, or a pin without a hash."""
    components: list[dict[str, Any]] = []
    for line in lock.splitlines():
        found = HASH.findall(line)
        match = PIN.match(line)
        if match:
            components.append(component(match["name"], match["version"], match["marker"]))
        elif found and components:
            components[-1]["hashes"] += [{"alg": "SHA-256", "content": content} for content in found]
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"{line}: expected a pin, a hash, or a comment")
    bare = [one["name"] for one in components if not one["hashes"]]
    if bare or not components:
        raise ValueError(f"no hash of {', '.join(bare) or 'anything'}; expected --hash=sha256:... for every pin")
    return components


def component(name: str, version: str, marker: str | None) -> dict[str, Any]:
    """One library, as CycloneDX has it."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    purl = f"pkg:pypi/{name}@{version}"
    properties = [{"name": "python:marker", "value": marker.strip()}] if marker else []
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [],
        **({"properties": properties} if properties else {}),
    }


def version() -> str:
    """The version of this program."""
    match = re.search(r'^__version__ = "([^"]+)"', (ROOT / "doctor/__init__.py").read_text("utf-8"), re.M)
    if not match:
        raise ValueError("doctor/__init__.py: no __version__")
    return match[1]


def sbom(lock: str, release: str) -> dict[str, Any]:
    """The bill of materials of one release."""
    libraries = pinned(lock)
    own = {**component("cluster-doctor", release, None), "type": "application"}
    del own["hashes"]
    refs = [library["bom-ref"] for library in libraries]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**own, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": libraries,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": refs}, *({"ref": ref} for ref in refs)],
    }


def main() -> None:
    """Writes the file that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python .ci/sbom.py OUT.cdx.json")
    text = json.dumps(sbom(LOCK.read_text("utf-8"), version()), indent=1)
    Path(sys.argv[1]).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
