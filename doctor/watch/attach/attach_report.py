"""What `doctor watch --attach` prints: the odd ranks, and what all ranks do, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from doctor.engine.exit_code import Exit
from doctor.engine.sanitize import count_noun, printable
from doctor.watch.attach.odd_ranks import Group, JobFinding
from doctor.watch.labelled_lines import folded, labelled

SCHEMA = "doctor.watch-attach/1"
MAX_GROUPS = 6
MAX_FRAMES = 4


def exit_code(jobs: Sequence[JobFinding], failed: Mapping[str, str], recorded: Sequence[str] = ()) -> int:
    """10 a rank is odd, or a recorder shows a cause; 12 undecided, or a host said nothing; 78 no rank; 0 they move."""
    if recorded or any(job.result == "odd" for job in jobs):
        return Exit.FAILED
    if failed or any(job.result == "undecided" for job in jobs):
        return Exit.UNKNOWN
    return Exit.HEALTHY if jobs else Exit.NOTHING


def render_text(
    jobs: Sequence[JobFinding],
    failed: Mapping[str, str],
    notes: Sequence[str],
    width: int,
    *,
    recorded: Sequence[str] = (),
    bold: bool = False,
    verbose: bool = False,
) -> str:
    """The report; ``width`` 0 does not fold lines."""
    lines: list[str] = []
    if not jobs:
        nobody = "No rank of a job runs here: no process has RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID or a device."
        lines += folded(nobody, width, "")
    for job in jobs:
        head = list(folded(job.text, width, ""))
        lines += [f"\x1b[1m{line}\x1b[0m" for line in head] if bold else head
        lines += ["", *labelled("job", f"{job.job}: {count_noun(job.ranks, 'process', 'processes')} seen", width)]
        groups = job.groups if verbose else job.groups[:MAX_GROUPS]
        for group in groups:
            lines += _group(group, width, verbose)
        if len(groups) < len(job.groups):
            lines += labelled("", f"{count_noun(len(job.groups) - len(groups), 'group')} more (--verbose)", width)
        for note in job.notes:
            lines += labelled("note", note, width)
        lines.append("")
    for sentence in recorded:
        lines += labelled("record", sentence, width)
    for host, reason in failed.items():
        lines += labelled("unknown", f"{printable(host, 80)}: {reason}", width)
    for note in notes:
        lines += labelled("note", note, width)
    return "\n".join(lines).rstrip("\n") + "\n"


def _group(group: Group, width: int, verbose: bool) -> Iterator[str]:
    yield from labelled("does", f"{', '.join(group.labels)}: {group.text}", width)
    for name, file, line in group.stack[: 12 if verbose else MAX_FRAMES]:
        short = file if verbose else "/".join(file.split("/")[-2:])
        yield from labelled("", f"  {name} ({short}:{line})", width)


def document(
    jobs: Sequence[JobFinding],
    failed: Mapping[str, str],
    notes: Sequence[str],
    code: int,
    recorded: Sequence[str] = (),
) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "schema": SCHEMA,
        "exit_code": code,
        "jobs": [
            {
                "job": job.job,
                "processes": job.ranks,
                "world": job.world,
                "result": job.result,
                "text": job.text,
                "odd": [
                    {"rank": entry.rank, "host": entry.host, "pid": entry.pid, "text": entry.text}
                    for entry in job.odd_ranks
                ],
                "groups": [
                    {"ranks": list(group.labels), "text": group.text, "stack": [list(frame) for frame in group.stack]}
                    for group in job.groups
                ],
                "notes": list(job.notes),
            }
            for job in jobs
        ],
        "recorded": list(recorded),
        "unknown": dict(failed),
        "notes": list(notes),
    }
