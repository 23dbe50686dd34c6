"""What rocm-smi prints, in the rows that amd-smi's JSON has: for hosts where amd-smi is not installed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from doctor.facts.accelerators import accelerator_vendors
from doctor.facts.reported_value import value_state

IDENTITY = "--showbus --showproductname --showdriverversion --json"
LINKS, ACCESS = "--showtopotype --json", "--showtopoaccess --json"
MODES = "--showcomputepartition --showmemorypartition --json"
ERRORS = "--showrasinfo"
"""It has no JSON of its counts (ROCm/legacy-rocm-build issue 4374)."""
QUERIES = (IDENTITY, LINKS, ACCESS, MODES, ERRORS)
"""One after another: a release that does not know an option, prints nothing of the others."""
_PAIR = re.compile(r"\(Topology\) Link (type|accessibility) between DRM devices (\d{1,3}) and (\d{1,3})", re.ASCII)
_ERROR_ROW = re.compile(r"[ \t]*(\w{2,20})[ \t]+([A-Z]{3,10}(?: ERROR)?)(?:[ \t]+(\d{1,18})[ \t]+(\d{1,18}))?[ \t]*\r?")
"""A block, the state of its error counter, corrected and uncorrected errors."""
_OFF = ("NONE", "DISABLED")


def rocm_rows(
    cards: Mapping[str, Any], documents: Mapping[str, object], errors: str, code: int
) -> dict[int, dict[str, Any]]:
    """By number of a GPU, what `AmdGpus` takes from amd-smi's documents.

    ``cards``: the answer to `IDENTITY`. ``documents``: the JSON of each query that was answered. ``code``: the exit
    status of `IDENTITY`; rocm-smi gives one where some value failed, and prints the others.
    """
    system, modes = cards.get("system"), documents.get(MODES)
    driver = str(system.get("Driver version", "")) if isinstance(system, dict) else ""
    counts = dict(_error_counts(errors))
    rows: dict[int, dict[str, Any]] = {}
    for name, card in cards.items():
        number = re.fullmatch(r"card(\d{1,3})", name, re.ASCII)
        if not number or not isinstance(card, dict):
            continue
        series = _product(card)
        mode = modes.get(name) if isinstance(modes, dict) else None
        mode = mode if isinstance(mode, dict) else {}
        rows[int(number[1])] = {
            "gpu": int(number[1]),
            "bdf": card.get("PCI Bus"),
            "asic": {"market_name": series or ("ERR!" if code else "")},
            "driver": {"version": driver},
            "ecc": {"total_uncorrectable_count": counts.get(int(number[1]))},
            "partition": {
                "compute_partition": mode.get("Compute Partition"),
                "memory_partition": mode.get("Memory Partition"),
            },
        }
    for gpu, links in _links(documents).items():
        if gpu in rows:
            rows[gpu]["links"] = links
    return rows


def _product(card: Mapping[str, object]) -> str:
    """The product's name; of an accelerator that the tool's list of names does not hold (N/A), its PCI id."""
    names = [str(card.get(key, "")) for key in ("Card Series", "Card series", "Device Name")]
    if printed := [name for name in names if value_state(name) != "absent"]:
        return printed[0]
    devices = [str(card.get(key, "")).lower().removeprefix("0x") for key in ("Card Model", "Device ID", "GPU ID")]
    accelerators = accelerator_vendors()["1002"].devices
    return next((f"AMD Instinct (1002:{device})" for device in devices if device in accelerators), "")


def _links(documents: Mapping[str, object]) -> dict[int, list[dict[str, Any]]]:
    """Each GPU's links, of the upper half of a matrix: link types, and whether the two can access each other."""
    pairs: dict[tuple[int, int], dict[str, str]] = {}
    for query in (LINKS, ACCESS):
        document = documents.get(query)
        system = document.get("system") if isinstance(document, dict) else None
        for key, value in (system if isinstance(system, dict) else {}).items():
            if match := _PAIR.fullmatch(key):
                pairs.setdefault((int(match[2]), int(match[3])), {})[match[1]] = str(value)
    links: dict[int, list[dict[str, Any]]] = {}
    for (first, second), values in pairs.items():
        status = {"True": "ENABLED", "False": "DISABLED"}.get(values.get("accessibility", ""), "")
        kind = "" if values.get("type") == "XXXX" else values.get("type", "")
        for gpu, peer in ((first, second), (second, first)):
            links.setdefault(gpu, []).append({"gpu": peer, "link_type": kind, "link_status": status})
    return links


def _error_counts(text: str) -> Iterator[tuple[int, str]]:
    """Uncorrected errors of all blocks of each GPU. A block whose state failed makes the count one that failed."""
    pieces = re.split(r"^GPU\[(\d{1,3})\]\s*:\s*RAS INFO", text, flags=re.M | re.ASCII)
    for gpu, body in zip(pieces[1::2], pieces[2::2], strict=True):
        states = [match for line in body.splitlines() if (match := _ERROR_ROW.fullmatch(line))]
        if any(match[2] == "UNKNOWN ERROR" for match in states):
            yield int(gpu), "Unknown Error"
        elif counted := [int(match[4]) for match in states if match[4] and match[2] not in _OFF]:
            yield int(gpu), str(sum(counted))
