"""`doctor baseline`, and the files of ``--baseline`` and ``--save-baseline``: a path, or ``site`` for this user's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from doctor.analysis.outliers.own_past import usual_range
from doctor.engine.errors import InputError, UsageError, require_one_of
from doctor.engine.language import localized, phrase
from doctor.engine.quantities import bytes_text
from doctor.engine.smoke_summary import SmokeSummary
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled
from doctor.report.layout.formatting import byte_rate, clean, count_noun
from doctor.smoke.model import Baseline
from doctor.smoke.speed.baseline import (
    EXCHANGE,
    SITE,
    merged,
    read_baseline,
    site_file,
    speeds_of,
    with_run,
    write_baseline,
)


def baseline_path(option: str, path: Path) -> Path:
    """The path itself, or the file in the state folder. Raises: InputError."""
    try:
        return site_file(os.environ) if str(path) == SITE else path
    except ValueError as error:
        raise InputError(filled("{0} {1}: {2}", option, path, error)) from None


def named_baseline(option: str, path: Path) -> Baseline:
    """The file's content. Raises: InputError."""
    place = baseline_path(option, path)
    try:
        return read_baseline(place)
    except OSError as error:
        raise InputError(
            filled("{0} {1}: {2}; expected a file of --save-baseline", option, place, error.strerror)
        ) from None
    except ValueError as error:
        raise InputError(filled("{0} {1}: {2}", option, place, error)) from None


def baseline_or_empty(option: str, path: Path) -> Baseline:
    """The file's content; an empty one where there is no file yet. Raises: InputError."""
    return named_baseline(option, path) if os.path.lexists(baseline_path(option, path)) else Baseline()


def compared_baseline(path: Path | None, saved: Path | None) -> Baseline | None:
    """What ``--baseline`` names; the first run of those that ``--save-baseline`` adds to it has none to compare with.

    Raises: InputError.
    """
    if path is None:
        return None
    return (baseline_or_empty if path == saved else named_baseline)("--baseline", path)


def store_baseline(option: str, path: Path, baseline: Baseline) -> None:
    """Writes the file, and makes the state folder. Raises: InputError."""
    place = baseline_path(option, path)
    try:
        if str(path) == SITE:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_baseline(place, baseline)
    except OSError as error:
        raise InputError(filled("{0} {1}: {2}", option, path, error.strerror or error)) from None


def add_to_baseline(path: Path, summary: SmokeSummary | None) -> None:
    """Adds the speeds of a whole run. Raises: InputError."""
    option = "--save-baseline"
    try:
        if summary is None:
            raise ValueError("there was no run")
        baseline = with_run(baseline_or_empty(option, path), speeds_of(summary))
    except ValueError as error:
        raise InputError(filled("{0} {1}: {2}", option, path, error)) from None
    store_baseline(option, path, baseline)


ACTIONS = ("show", "export", "import")


def command(
    action: Annotated[str, typer.Argument(metavar="show|export|import", help="What to do with the site's baseline.")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="To write, to read, or to show instead of the site's.")
    ] = None,
) -> None:
    """Show, export or import the speeds of this site's smoke runs.

    `doctor smoke HOSTS --save-baseline site` adds a run, and `--baseline site` compares with them: per product,
    backend, torch, size, ranks and hosts. They lie in the state folder (~/.local/state/doctor).

    Exit codes: 0 done, 2 usage, 78 no run is saved yet, or a file is unreadable.
    """
    require_one_of("ACTION", action, ACTIONS)
    site = Path(SITE)
    if action != "show" and file is None:
        raise UsageError(filled("doctor baseline {0}: expected a file", action))
    if action == "import" and file is not None:
        both = _merged(baseline_or_empty("import", site), named_baseline("import", file), file)
        return store_baseline("import", site, both)
    if file is None and not baseline_or_empty(action, site).series:
        raise InputError(localized("no run is saved yet"))
    baseline = named_baseline(action, site if file is None or action == "export" else file)
    if action == "export" and file is not None:
        return store_baseline("export", Path(os.path.abspath(file)), baseline)
    return write_stdout("\n".join(baseline_lines(baseline)))


def _merged(first: Baseline, second: Baseline, file: Path) -> Baseline:
    try:
        return merged(first, second)
    except ValueError as error:
        raise InputError(filled("{0} {1}: {2}", "import", file, error)) from None


def baseline_lines(baseline: Baseline) -> list[str]:
    """Of each speed the median, the spread and the least usual value, under its kind of fleet."""
    lines, kind = list[str](), ("", "", "")
    for history in baseline.series:
        usual = usual_range(history.values)
        if usual is None:
            continue
        if kind != (kind := (history.product, history.backend, history.torch)):
            product, backend, torch = (clean(text, 120) for text in kind)
            lines.append(
                phrase("{product} with {backend} and torch {torch}", product=product, backend=backend, torch=torch)
            )
        ranks, hosts = count_noun(history.ranks, "rank"), count_noun(history.hosts, "host")
        of_all = phrase("{ranks} on {hosts}", ranks=ranks, hosts=hosts)
        of_two = localized("two hosts") if history.hosts > 1 else localized("two ranks of a host")
        lines.append(
            phrase(
                "  {op} {size}, {where}: median {median} of {runs}, spread {spread}, usual from {lowest} on",
                op=clean(history.op, 40),
                size=bytes_text(history.bytes),
                where=of_two if history.op == EXCHANGE else of_all,
                median=byte_rate(usual.median),
                runs=count_noun(usual.count, "run"),
                spread=f"{usual.spread - 1:.1%}" if usual.spread > 1 else localized("not known"),
                lowest=byte_rate(usual.lowest),
            )
        )
    return lines or [localized("no run is saved yet")]
