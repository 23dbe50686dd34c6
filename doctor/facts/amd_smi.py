"""AMD GPUs as amd-smi lists them, else rocm-smi: identity, driver, partition modes, error counts.

Where amd-smi is not installed, what rocm-smi prints is put in the rows that amd-smi's JSON has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.accelerators import accelerator_vendors
from doctor.facts.gpu_report import short_bus
from doctor.facts.reported_value import ToolBlock, lacked_reasons, reported_count, tool_blocks, value_state

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
    for gpu, links in _printed_links(documents).items():
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


def _printed_links(documents: Mapping[str, object]) -> dict[int, list[dict[str, Any]]]:
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


CALL_SECONDS = 15
_SCRIPT = f"""command -v amd-smi >/dev/null || {{
  for query in {" ".join(f"'{query}'" for query in QUERIES)}; do
    echo "-- rocm-smi $query --"
    timeout {CALL_SECONDS} rocm-smi $query </dev/null 2>/dev/null
    echo "-- exit $? --"
  done; exit 0
}}
for query in "list" "metric --ecc" "static --asic --bus --driver" "static --ras" "static --partition" \\
  "topology --access --link-type"; do
  echo "-- $query --"
  timeout {CALL_SECONDS} amd-smi $query --json </dev/null 2>&1
  echo "-- exit $? --"
done"""
REQUIRED = ("list", "metric --ecc", "static --asic --bus --driver")
"""Queries that all releases have; the modes of partitions are elsewhere in the newest ones."""
ROCM = "rocm-smi "
_EXPECTED = r"required groups|low-power state|UNKNOWN ERROR|Correctable Error"
"""Of a user that lacks a group, an idle GPU, and the table of `ERRORS`, whose rows are judged by themselves."""
MAX_GPUS = 256


class AmdGpu(msgspec.Struct, frozen=True):
    """One GPU, or one partition of it."""

    index: int
    bus: str
    """PCI address, as 0000:05:00.0; a question mark where another query than ``list`` tells of the GPU."""
    name: str = ""
    driver: str = ""
    pcie_width_max: int | None = None
    uncorrectable: int | None = None
    """Errors that could not be corrected; None where the product counts none."""
    deferred: int | None = None
    """Errors in memory that no program has used yet."""
    retires_too_many: bool = False
    """It has retired more pages of its memory than its driver allows; since ROCm 7.0.2."""
    compute_partition: str = ""
    """SPX, DPX, CPX, ...; empty where it is not reported."""
    memory_partition: str = ""
    """NPS1, NPS4, ..."""
    links: tuple[tuple[int, str, str], ...] = ()
    """To each other GPU: its number, XGMI or PCIE, and ENABLED or DISABLED; empty where the tool shows no topology."""


_COUNTED = (
    *("name", "driver", "pcie_width_max", "uncorrectable", "deferred", "compute_partition", "memory_partition"),
)
"""What each GPU of a product has, or none; of one that is divided, the first partition alone shows the modes."""


class AmdGpus(Fact, frozen=True):
    """Every AMD GPU that amd-smi lists, from its JSON; where it is not installed, of rocm-smi's.

    Raw output, from amd-smi::

        -- list --
        [{"gpu": 0, "bdf": "0000:05:00.0", "uuid": "GPU-1", "kfd_id": 7, "node_id": 3, "partition_id": 0}]
        -- exit 0 --
        -- metric --ecc --
        {"gpu_data": [{"gpu": 0, "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 0}}]}
        -- exit 0 --
        -- static --asic --bus --driver --
        {"gpu_data": [{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X"}, "driver": {"version": "6.10.5"}}]}
        -- exit 0 --
    """

    probe = run(_SCRIPT, requires="amd-smi rocm-smi", root=True, timeout=85, limit=1 << 20)

    gpus: tuple[AmdGpu, ...]
    tool: str = "amd-smi"
    """That answered: amd-smi or rocm-smi."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> AmdGpus:
        parts = _parts(answer.text())
        problems = {
            query if query.startswith(ROCM) else "amd-smi " + query: block.problem
            for query, block in parts.items()
            if block.code == 0 and block.problem
        }
        if any(query.startswith(ROCM) for query in parts):
            gpus = cls._of_rows(_rows_of_rocm_smi(parts), "rocm-smi")
            return msgspec.structs.replace(gpus, unread=problems | gpus.unread)
        rows: dict[int, dict[str, Any]] = {}
        unread = problems
        failed: list[Unreadable] = []
        for query in dict.fromkeys((*REQUIRED, *parts)):
            block = parts.get(query, ToolBlock(query, "", 124))
            try:
                for row in _gpu_rows(block):
                    rows.setdefault(row["gpu"], {}).update(row)
            except Unreadable as why:
                failed += [why] if query in REQUIRED else []
                if query in REQUIRED or (
                    not block.code and _document(block.text) is not None
                ):  # an older one has no such query
                    unread["amd-smi " + query] = str(why)
        if "amd-smi list" in unread:
            rows = {index: row | {"unlisted": "?"} for index, row in rows.items()}
        if failed and not rows:
            raise failed[0]
        gpus = cls._of_rows(rows, "amd-smi")
        if failed and not gpus.gpus:
            raise failed[0]
        return msgspec.structs.replace(gpus, unread=gpus.unread | unread)

    @classmethod
    def _of_rows(cls, rows: Mapping[int, Mapping[str, Any]], tool: str) -> AmdGpus:
        if not rows:
            raise Absent(filled("{0} lists no GPU", tool))
        gpus, unread = [], {}
        for index, row in sorted(rows.items())[:MAX_GPUS]:
            try:
                gpus.append(_gpu(index, row))
            except Unreadable as why:
                unread[f"GPU {index}"] = str(why)
        usual = next((gpu.name for gpu in gpus if gpu.name), "")
        answered = {
            gpu.index: (
                f"{gpu.name or usual} {bool(rows[gpu.index].get('partition_id'))}",
                {name for name in _COUNTED if getattr(gpu, name) not in (None, "")},
            )
            for gpu in gpus
        }
        unread |= {f"GPU {index}": why for index, why in lacked_reasons(answered).items()}
        return cls(gpus=tuple(gpus), tool=tool, unread=unread)


def _parts(text: str) -> dict[str, ToolBlock]:
    """Each query with what was printed for it and its exit status; one that was cut off is left out."""
    blocks = tool_blocks(text, r"list|metric --ecc|(?:static|topology|rocm-smi) --[a-z -]{1,80}", _EXPECTED)
    return {block.name: block for block in blocks if block.code is not None}


def _rows_of_rocm_smi(parts: Mapping[str, ToolBlock]) -> dict[int, dict[str, Any]]:
    """Raises: Unreadable."""
    printed = {query.removeprefix(ROCM): answered for query, answered in parts.items()}
    documents = {query: _document(block.text) for query, block in printed.items() if query != ERRORS}
    identity = printed.get(IDENTITY, ToolBlock(ROCM + IDENTITY, "", 124))
    cards = documents.get(IDENTITY)
    if not isinstance(cards, dict):
        raise _not_read(identity)
    return rocm_rows(cards, documents, printed[ERRORS].text if ERRORS in printed else "", identity.code or 0)


def _not_read(block: ToolBlock) -> Unreadable:
    """Why a query has no answer."""
    name = block.name if block.name.startswith(ROCM) else "amd-smi " + block.name
    if block.code:
        return Unreadable(block.failure(name, CALL_SECONDS))
    first = strip_control_chars(block.text.strip().partition("\n")[0], 120)
    return Unreadable(filled("{0}: expected JSON of GPUs, found {1}", name, first or filled("an empty answer")))


def _document(text: str) -> object:
    r"""The first JSON document of a text, behind what a tool prints before it; None where there is none.

    >>> _document('[Errno 13] /dev/kfd\n{"gpu_data": []}\n{"gpu_data": []}')
    {'gpu_data': []}
    """
    for begin in islice(re.finditer(r"^[ \t]*([\[{])", text, re.M), 20):
        try:
            return json.JSONDecoder().raw_decode(text, begin.start(1))[0]
        except (ValueError, RecursionError):
            continue
    return None


def _gpu_rows(block: ToolBlock) -> Iterator[dict[str, Any]]:
    """The GPUs of one document, which newer releases put under ``gpu_data``. Raises: Unreadable."""
    document = _document(block.text)
    rows = document.get("gpu_data") if isinstance(document, dict) else document
    if not isinstance(rows, list) or block.code:
        raise _not_read(block)
    numbers = [row.get("gpu") if isinstance(row, dict) else None for row in rows]
    if any(type(number) is not int or number < 0 for number in numbers) or len({*numbers}) < len(numbers):
        raise Unreadable(filled("amd-smi {0}: a row without the number of a GPU", block.name))
    yield from rows


def _gpu(index: int, row: Mapping[str, Any]) -> AmdGpu:
    """Raises: Unreadable where a count failed, or no address is listed."""
    names = ("asic", "bus", "driver", "ecc", "ras", "partition")
    asic, bus, driver, ecc, ras, modes = (_section(row, name) for name in names)
    address = _word(row, "bdf") or _word(bus, "bdf") or _word(row, "unlisted")
    name = _word(asic, "market_name")
    if not address:
        raise Unreadable("the tool lists no address of it")
    if "Instinct" in name and _count(ecc, "total_uncorrectable_count") is None:
        raise Unreadable("the tool reports no count of its errors: it prints N/A also where it failed")
    return AmdGpu(
        index,
        short_bus(address),
        name,
        _word(driver, "version") or _word(driver, "driver_version"),
        _count(bus, "max_pcie_width"),
        _count(ecc, "total_uncorrectable_count"),
        _count(ecc, "total_deferred_count"),
        _word(ras, "bad_page_threshold_exceeded") == "True",
        _word(modes, "accelerator_partition") or _word(modes, "compute_partition"),
        _word(modes, "memory_partition"),
        tuple(_links(index, row.get("links"))),
    )


def _links(index: int, links: object) -> Iterator[tuple[int, str, str]]:
    """The GPU's rows of ``amd-smi topology``, but that to itself; ROCm before 6.3 has another form, without rows."""
    for link in links if isinstance(links, list) else ():
        if isinstance(link, dict) and isinstance(link.get("gpu"), int) and link["gpu"] != index:
            kind, status = _word(link, "link_type"), _word(link, "link_status")
            if kind:
                yield link["gpu"], kind, status


def _section(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = row.get(name)
    return section if isinstance(section, dict) else {}


def _word(section: Mapping[str, Any], name: str) -> str:
    """A text; empty where there is none. Raises: Unreadable where it could not be read."""
    text = str(section.get(name, "") or "").strip()
    state = value_state(text)
    if state == "failed":
        raise Unreadable(f"{name}: {strip_control_chars(text, 80)}")
    return strip_control_chars(text, 80) if state == "read" else ""


def _count(section: Mapping[str, Any], name: str) -> int | None:
    """A count, which some releases give with its unit. Raises: Unreadable where it failed."""
    value = section.get(name)
    if isinstance(value, dict):
        value = value.get("value")
    return reported_count(name, None if value is None else str(value))
