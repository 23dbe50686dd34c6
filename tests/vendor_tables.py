"""Tables of faults, out of a copy of their vendor's repository: shows what has changed there, and writes them anew.

python -m tests.vendor_tables mind-cluster PATH          shows the difference
python -m tests.vendor_tables mind-cluster PATH --write  and writes the table
python -m tests.vendor_tables gpud|torch-npu|cann|linux PATH [--write]

PATH is a clone, bare or not: github.com/Ascend/mind-cluster (NPU fault codes and their levels, and those of the L1
switch), github.com/leptonai/gpud (NVIDIA's Xid catalog, which NVIDIA publishes as a spreadsheet only, and the SXids
of the fabric manager's guide), github.com/Ascend/pytorch (torch_npu and the CANN that each release was made for), or
gitcode.com/cann/release-management (the matrix of CANN and drivers); or Linux itself: which of its messages each row of
doctor/facts/kernel_faults.toml knows, and which errors in the same files no row has. Nothing is fetched.
A package of Linux serves as well, such as linux-source-6.12 of Debian, unpacked and committed to a new repository.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from doctor.engine.version_matrix import DRIVER_MATRIX, TORCH_NPU_TABLE
from tests.kernel_formats import kernel_formats

FACTS = Path(__file__).resolve().parents[1] / "doctor" / "facts"
NPU_CODES = FACTS / "npu_fault_codes.toml"
XIDS = FACTS / "xid_catalog.toml"
KERNEL_FORMATS = Path(__file__).parent / "facts" / "recorded" / "kernel_formats.tsv"
MIND_CLUSTER = "component/ascend-device-plugin/build"
GPUD = "components/accelerator/nvidia"


def git(repository: str, *items: str) -> str:
    """What git prints about a repository. Raises: CalledProcessError."""
    return subprocess.run(["git", "-C", repository, *items], check=True, capture_output=True, text=True).stdout


def text_of(repository: str, path: str) -> str:
    """One file of the newest commit."""
    return git(repository, "show", f"HEAD:{path}")


def header(repository: str, name: str, files: str, note: str) -> str:
    """The first lines of a table: where it comes from, and what makes it."""
    commit, date = git(repository, "log", "-1", "--format=%H %cs").split()
    lines = textwrap.wrap(f"{note} Source: {files} of github.com/{name}, commit {commit} ({date}).", 118)
    return "".join(f"# {line}\n" for line in [*lines, "Written by python -m tests.vendor_tables."]) + "\n"


def listed(name: str, values: Iterable[object]) -> str:
    """A TOML array of strings or numbers, several on a line."""
    items = ", ".join(json.dumps(value) for value in values)
    lines = textwrap.wrap(items, 116, break_long_words=False, break_on_hyphens=False)
    return f"{name} = [\n" + "".join(f"    {line}\n" for line in lines) + "]\n"


def npu_fault_codes(repository: str) -> str:
    """The levels of all codes of MindCluster's faultCode.json and SwitchFaultCode.json."""
    parts = [
        header(
            repository,
            "Ascend/mind-cluster",
            f"faultCode.json and SwitchFaultCode.json in {MIND_CLUSTER}",
            "Fault codes of Ascend NPUs, and of the L1 switch of A3 and A5, by the level that the vendor's scheduler "
            "gives them.",
        )
    ]
    for table, file in (("npu", "faultCode.json"), ("switch", "SwitchFaultCode.json")):
        levels = json.loads(text_of(repository, f"{MIND_CLUSTER}/{file}"))
        parts.append(f"[{table}]\n")
        for level, codes in levels.items():
            parts.append(listed(level.removesuffix("FaultCodes").removesuffix("Codes"), sorted(set(codes))))
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


_XID = re.compile(r'\{Code: (\d+), Mnemonic: "([^"]*)", Description: "([^"]*)", ImmediateResolution: "([^"]*)"')
_SXID = re.compile(r"^\t(\d+): \{(.*?)^\t\},", re.M | re.S)


def xid_catalog(repository: str) -> str:
    """NVIDIA's immediate actions of all Xids, and how severe each SXid is."""
    actions: dict[str, list[int]] = {}
    for code, _, meaning, action in _XID.findall(text_of(repository, f"{GPUD}/xid/catalog_generated.go")):
        actions.setdefault("UNUSED" if meaning == "Unused" else action or "NONE", []).append(int(code))
    severities: dict[str, list[int]] = {"non-fatal": [], "fatal": [], "always-fatal": []}
    for code, body in _SXID.findall(text_of(repository, f"{GPUD}/sxid/sxid.go")):
        always, fatal = (
            ("defaultAlwaysFatalErr" in body or "AlwaysFatal:    true" in body),
            "PotentialFatal: true" in body,
        )
        fatal = fatal or "defaultPotentialFatalErr" in body
        severities["always-fatal" if always else "fatal" if fatal else "non-fatal"].append(int(code))
    note = (
        "NVIDIA's Xids by their immediate action (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html; "
        "UNUSED: no driver of Ampere or newer GPUs has it), and SXids by their severity (Fabric Manager User Guide, "
        "appendix D)."
    )
    files = f"xid/catalog_generated.go and sxid/sxid.go in {GPUD}"
    parts = [header(repository, "leptonai/gpud", files, note), "[xid]\n"]
    parts += [listed(action, sorted(codes)) for action, codes in sorted(actions.items())]
    parts.append("\n[sxid]\n")
    parts += [listed(severity, sorted(codes)) for severity, codes in severities.items()]
    return "".join(parts)


_TORCH_NPU_ROW = re.compile(r"^\|\s*(\d[\w.]*)[^|]*\|[^|]*\|[^|]*\|\s*CANN (\d[\w.]*)\s*\|", re.M)


def torch_npu_releases(repository: str) -> str:
    """The releases of torch_npu, by the CANN that they were made for."""
    name = "COMPATIBILITY.en.md"
    rows: dict[str, list[str]] = {}
    for torch_npu, cann in _TORCH_NPU_ROW.findall(text_of(repository, name)):
        rows.setdefault(cann, []).append(torch_npu)
    note = "Releases of torch_npu, by the CANN that they were made for."
    parts = [header(repository, "Ascend/pytorch", name, note), "[torch_npu]\n"]
    return "".join([*parts, *(listed(json.dumps(cann), releases) for cann, releases in rows.items())])


def two_numbers(releases: Iterable[str]) -> list[str]:
    """``25.0.X`` and ``26.0.RC1/25.7.RC1`` as 25.0, 26.0 and 25.7."""
    return sorted({".".join(release.split(".")[:2]) for text in releases for release in text.split("/")})


def cann_driver_matrix(repository: str) -> str:
    """The matrix of CANN and drivers in the newest release notes: rows of Y and N below a row of driver releases."""
    names = git(repository, "ls-tree", "-r", "--name-only", "HEAD").split()
    notes = [name for name in names if re.fullmatch(r"\d+(?:\.\d+)*/release-notes\.md", name)]
    newest = max(notes, key=lambda name: [int(part) for part in name.partition("/")[0].split(".")])
    note = "With which Ascend HDK (driver) releases CANN works, and with which not, by the matrix in its release notes."
    commit = header(repository, "cann/release-management", newest, note).replace("github.com", "gitcode.com")
    parts, drivers = [commit], list[str]()
    for line in re.sub(r"</?t[dh][^>]*>", "|", text_of(repository, newest).replace("</tr>", "\n")).splitlines():
        cells = [cell for cell in re.sub(r"<[^>]*>", "", line).replace("|", " ").split() if cell.strip(":-")]
        if len(cells) > 2 and all(re.fullmatch(r"[\d.]+(?:X|RC\d+)?(?:/[\d.]+(?:X|RC\d+)?)*", cell) for cell in cells):
            drivers = cells
        elif drivers and len(cells) == len(drivers) + 1 and set(cells[1:]) <= {"Y", "N"}:
            (cann,) = two_numbers(cells[:1])
            parts.append(f"[[matrix]]\ncann = {json.dumps(cann)}\n")
            for field, letter in (("works", "Y"), ("fails", "N")):
                chosen = two_numbers(driver for driver, cell in zip(drivers, cells[1:], strict=True) if cell == letter)
                parts.append(f"{field} = {json.dumps(chosen)}\n")
            parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


TABLES: Mapping[str, tuple[Path, object]] = {
    "mind-cluster": (NPU_CODES, npu_fault_codes),
    "gpud": (XIDS, xid_catalog),
    "torch-npu": (TORCH_NPU_TABLE, torch_npu_releases),
    "cann": (DRIVER_MATRIX, cann_driver_matrix),
    "linux": (KERNEL_FORMATS, kernel_formats),
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vendor", choices=sorted(TABLES))
    parser.add_argument("repository")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(argv)
    path, make = TABLES[options.vendor]
    assert callable(make)
    text = make(options.repository)
    before = path.read_text("utf-8") if path.exists() else ""
    names = (str(path.name), f"{path.name} of {options.repository}")
    sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), text.splitlines(True), *names))
    if options.write:
        path.write_text(text, "utf-8")
    return int(text != before and not options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
