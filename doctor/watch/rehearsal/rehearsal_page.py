"""A rehearsal in words, and as a document. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from doctor import __version__
from doctor.engine.language import localized, localized_filled, phrase
from doctor.engine.sanitize import number_ranges
from doctor.engine.texts import filled
from doctor.report.formats.json import document_text
from doctor.report.layout.formatting import clean, count_noun, translated
from doctor.watch.rehearsal.conduct import RehearsalResult
from doctor.watch.rehearsal.judge import Misfit
from doctor.watch.rehearsal.rank_view import RankView

SCHEMA = "doctor.rehearsal/1"
MAX_RANKS = 32
"""Ranks in the text; the document has all."""
MAX_CPUS = 30


class CheckFinding(msgspec.Struct, frozen=True):
    """What a check says of the launch as the ranks got it."""

    check: str
    severity: str
    message: str


class RehearsalPage(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows."""

    result: RehearsalResult
    expected: int | None
    """Ranks of the job."""
    missing_ranks: tuple[int, ...]
    misfits: tuple[Misfit, ...]
    checks: tuple[CheckFinding, ...]
    judged: int
    """Checks that were evaluated."""


def render(page: RehearsalPage, code: int, verbose: bool = False) -> str:
    """What each rank got, what does not fit, and the verdict last."""
    return "\n".join(_lines(page, code, verbose)) + "\n"


def _lines(page: RehearsalPage, code: int, verbose: bool) -> Iterator[str]:
    result = page.result
    where = localized_filled(result.line.where)
    if result.line.is_whole:
        yield phrase("all of {where} was run, with a stub in the place of its program", where=where)
    elif where:
        yield phrase("the launch line of {where}; nothing else of the script was run", where=where)
    limit = None if verbose else MAX_RANKS
    for view in result.views[:limit]:
        device = filled("{0} ({1})", view.device[0], view.device[1]) if view.device else localized("none")
        cpus = number_ranges(sorted(view.cpus))
        cpus = cpus if len(cpus) <= MAX_CPUS else f"{cpus[:MAX_CPUS]}..."
        nodes = number_ranges(sorted(view.cpu_nodes)) or "-"
        rank = "-" if view.rank is None else view.rank
        local = "-" if view.local_rank is None else view.local_rank
        text = phrase(
            "rank {rank} on {host}: local rank {local}, device {device}, CPUs {cpus}, NUMA node {nodes}, pid {pid}",
            rank=rank, host=view.host, local=local, device=device, cpus=cpus or "-", nodes=nodes, pid=view.pid,
        )  # fmt: skip
        yield clean(text, 300)
    for view in result.schedulers:
        yield clean(phrase("scheduler on {host}: pid {pid}; no rank", host=view.host, pid=view.pid), 300)
    if limit and len(result.views) > limit:
        yield phrase("... and {count} more (-v has all)", count=len(result.views) - limit)
    for finding in page.checks:
        yield f"{_word(finding.severity)} {finding.check}{localized(': ')}{localized_filled(finding.message)}"
    for misfit in page.misfits:
        yield f"{_word(misfit.severity)} {translated(misfit.text, 600)}"
    yield from _ending(page)
    yield _verdict(page, code)


def _word(severity: str) -> str:
    return "FAIL" if severity == "error" else "warn"


def _ending(page: RehearsalPage) -> Iterator[str]:
    result = page.result
    if page.missing_ranks:
        ranks = number_ranges(page.missing_ranks)
        yield phrase("not seen: ranks {ranks}; their hosts may start them with a line of their own", ranks=ranks)
    if result.later:
        later = sum(map(len, result.later))
        yield phrase("the line runs its program again: {count} later processes are judged, and not listed", count=later)
    if result.unread:
        yield phrase("{count} answers of ranks cannot be read", count=result.unread)
    if not (result.is_over and result.views):
        if result.code is None:
            took = f"{result.seconds:.0f}"
            if result.views:
                yield phrase("the launcher had not ended after {seconds} s, and was ended", seconds=took)
            else:
                yield phrase(
                    "the launcher had not ended after {seconds} s, and was ended; --for gives it longer", seconds=took
                )
        else:
            yield phrase("the launcher ended with exit status {code}", code=result.code)
        yield from (f"    {text}" for text in result.output[-8:])


def _verdict(page: RehearsalPage, code: int) -> str:
    count = len(page.result.views)
    hosts = count_noun(len({view.host for view in page.result.views}), "host")
    total = page.expected if page.expected is not None else count
    values = {"total": count_noun(total, "rank"), "hosts": hosts, "seconds": f"{page.result.seconds:.1f}"}
    counts = phrase("{count} of {total}, on {hosts}, in {seconds} s", count=count, **values)
    good = "WARNINGS" if page.misfits or page.checks else "HEALTHY"
    verdicts = {0: good, 10: "FAILED", 12: "UNKNOWN"}
    return f"{localized(verdicts.get(code, 'UNKNOWN'))}{localized(': ')}{counts}"


def render_json(page: RehearsalPage, code: int) -> str:
    """As a document of ``doctor.rehearsal/1``."""
    result = page.result
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "exit": int(code),
        "seconds": round(result.seconds, 1),
        "launcher_exit": result.code,
        "expected": page.expected,
        "missing": page.missing_ranks,
        "ranks": [
            {
                "rank": view.rank,
                "local_rank": view.local_rank,
                "host": view.host,
                "pid": view.pid,
                "device": _device(view),
                "cpus": number_ranges(sorted(view.cpus)),
                "nodes": sorted(view.cpu_nodes),
                "variables": view.variables,
                "properties": view.properties,
            }
            for view in result.views
        ],
        "misfits": [misfit._asdict() for misfit in page.misfits],
        "checks": [msgspec.structs.asdict(finding) for finding in page.checks],
        "output": result.output,
    }
    return document_text(document)


def _device(view: RankView) -> dict[str, int | str] | None:
    if view.device is None:
        return None
    number, address, node = view.device
    return {"number": number, "address": address, "node": node}
