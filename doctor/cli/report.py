"""`doctor report`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from doctor.cli.selection import Sites, catalogue
from doctor.cli.shared_options import spread
from doctor.engine.errors import InputError, UsageError
from doctor.session.console import write
from doctor.session.finish import Output, judged, refuse_output, show
from doctor.session.policy import settled

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.fact import Fact
    from doctor.engine.record import Run
    from doctor.engine.result import Report
    from doctor.report.diff.compare import Difference

LARGEST = 1 << 30
"""Bytes of a file that is read."""
TELLS = ("human", "plain", "json", "md")
"""The formats of a difference."""


@spread
def command(
    *,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A run that --save kept, or a report of --json; - is stdin.")
    ],
    diff: Annotated[
        Path | None, typer.Option("--diff", metavar="OLD", help="Tell what appeared, went and stayed since OLD.")
    ] = None,
    checks: Sites = [],  # noqa: B006 - typer's way
    output: Output,
) -> None:
    """Show a saved run or report again: in any format, or beside an older one.

    A run is judged anew, by the checks that it was made for; a report is taken as it was judged, waivers
    and all. With --diff, a finding that is not there any more is gone only where its check looked again, else it is
    unseen; -f takes human, plain, json and md.

    Exit codes: as doctor check, by FILE alone: OLD changes none. 78: a file that cannot be read.
    """
    refuse_output(output, checks)
    if output.save or output.from_file:
        raise UsageError("--save and --from go with doctor check: expected FILE alone")
    _refuse_formats(output, diff is not None)
    known = catalogue(checks)
    found = _read(file, known, output)
    code = judged(found.report, output)
    if diff is None:
        show(found.report, known, code, output, aliases=found.aliases)
        raise typer.Exit(code)
    old = _read(diff, known, output)
    _tell(old, found, code, output)
    raise typer.Exit(code)


class _Found(NamedTuple):
    report: Report
    aliases: tuple[str, ...] = ()
    """What the hosts call themselves, where that is known."""


def _refuse_formats(output: Output, diff: bool) -> None:
    from doctor.session.output_files import asked_for

    other = [one.name for one in asked_for(output.formats, output.as_json) if one.name not in TELLS]
    if diff and other:
        raise UsageError(f"-f {other[0]} with --diff: expected {', '.join(TELLS)}")


def _read(path: Path, known: list[Check], output: Output) -> _Found:
    """What the file holds, whichever kind it is. Today's waivers are for what is judged today. Raises: CommandError."""
    from doctor.engine.record import SCHEMA, BadRun, load
    from doctor.hosts.nodeset import shown
    from doctor.report.diff.load import BadReport, made_of, parsed

    name = shown(str(path), 200)
    data = _bytes(path, name)
    try:
        document = parsed(data, name)
        if document.get("schema") != SCHEMA:
            return _Found(made_of(document, name))
        run = load(data, name)
    except (BadReport, BadRun) as error:
        raise InputError(str(error)) from None
    aliases = tuple(record.visit.name for record in run.hosts.values())
    return _Found(settled(_again(run, known), output.config, known), aliases)


def _bytes(path: Path, name: str) -> bytes:
    try:
        with open(0 if str(path) == "-" else path, "rb", closefd=str(path) != "-") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}; expected a saved run or a report") from None
    if len(data) > LARGEST:
        raise InputError(f"{name}: larger than {LARGEST >> 30} GiB; expected a saved run or a report")
    return data


def _again(run: Run, known: list[Check]) -> Report:
    """Judged by the checks that it was made for, or whose facts some host was asked for; the others are noted."""
    import msgspec

    from doctor.report.layout.formatting import count
    from doctor.session.examine import replay

    picked = [one for one in known if _was_asked(run, one)]
    report = replay(run, picked)
    left = len([one for one in known if one not in picked and one.area != "smoke"])
    if not left:
        return report
    said = count(left, "check") + (" is" if left == 1 else " are")
    note = f"{said} not judged, for the run was not made for {'it' if left == 1 else 'them'}"
    return msgspec.structs.replace(report, notes=(*report.notes, note))


def _was_asked(run: Run, check: Check) -> bool:
    """Where the run does not tell, and no host answered, every check stays: it will be unknown."""
    if run.checks:
        return check.name in run.checks
    if check.area == "smoke":
        return bool(run.smoke)
    answered = [record for record in run.hosts.values() if not record.visit.trouble]
    names = {fact.__name__ for fact in _first_round(check.facts)}
    return not answered or all(any(name in record.outputs for record in answered) for name in names)


def _first_round(facts: Iterable[type[Fact]]) -> Iterator[type[Fact]]:
    """What the first visit is asked for, for these facts."""
    for fact in facts:
        if fact.needs:
            yield from _first_round(fact.needs)
        elif fact.probe.kind not in ("visit", "smoke"):
            yield fact


def _tell(old: _Found, new: _Found, code: int, output: Output) -> None:
    """What changed, in every format that was asked for."""
    from doctor.config.atomic_write import write_whole
    from doctor.report.diff.compare import compare
    from doctor.session.output_files import asked_for, complain

    before, now = old.report, new.report
    if output.redact:
        from doctor.session.redact import veiled

        aliases = (*old.aliases, *new.aliases, *before.hosts, *now.hosts)
        before, now = veiled(before, aliases), veiled(now, aliases)
    difference = compare(before, now)
    asked = asked_for(output.formats, output.as_json)
    for one in asked:
        if one.path:
            try:
                write_whole(one.path, _renderer(one.name)(difference, code).encode("utf-8", "backslashreplace"))
            except OSError as error:
                complain(f"-f {one.name}={one.path}: {error.strerror or error}; it was not written")
    name = next((one.name for one in asked if not one.path), "" if output.quiet else "plain")
    if name:
        write(_renderer(name)(difference, code))


def _renderer(name: str) -> Callable[[Difference, int], str]:
    from doctor.report.diff import render

    return {"json": render.render_json, "md": render.render_markdown}.get(name, render.render)
