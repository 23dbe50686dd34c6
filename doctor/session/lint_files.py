"""The job scripts that `doctor lint` is given: files, and those of folders; and the launch of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.engine.check import Check
from doctor.engine.errors import InputError
from doctor.engine.record import LaunchOptions, RankTableFile
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.job_environment import JobEnvironment, launches_of_job_script, of_launch_line
from doctor.job import LaunchConfig, RankTable
from doctor.job.training import TrainingLaunch
from doctor.job.training.host_slots import ReadFile
from doctor.session.script_launches import launches_of_script
from doctor.session.select_checks import of_launch_alone
from doctor.session.several_launches import places
from doctor.session.training_files import MAX_FILES, followed, read_text

_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".sub", ".pbs", ".lsf", ".job")
_OTHERS = (".py", ".json", ".toml")
_MOST_ENTRIES = 20_000


def job_scripts(paths: Sequence[str], leave_out: Callable[[str], None]) -> list[str]:
    """The paths, with the job scripts of each folder in its place.

    ``leave_out`` is called with each script of a folder that starts no training, or that no shell reads.
    Raises: InputError for a folder without one.
    """
    result: list[str] = []
    for path in paths:
        result += _of_folder(path, leave_out) if os.path.isdir(path) else [path]
    return list(dict.fromkeys(result))


def _of_folder(folder: str, leave_out: Callable[[str], None]) -> list[str]:
    scripts: list[str] = []
    entries = 0
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        entries += len(names)
        scripts += [os.path.join(root, name) for name in sorted(names) if name.endswith(_SCRIPTS)]
        if entries > _MOST_ENTRIES:
            raise InputError(filled("{0}: more than {1} files", printable(folder, 200), _MOST_ENTRIES))
    launching = [path for path in scripts if _starts_training(path, leave_out)]
    if not launching:
        raise InputError(filled("{0}: no job script in this folder starts a training", printable(folder, 200)))
    if len(launching) > MAX_FILES:
        raise InputError(
            filled("{0}: {1} job scripts; expected at most {2}", printable(folder, 200), len(launching), MAX_FILES)
        )
    return launching


def _starts_training(path: str, leave_out: Callable[[str], None]) -> bool:
    try:
        launches_of_script(read_text(path), printable(path, 200), os.environ, lambda _: None)
    except (InputError, ValueError) as why:
        leave_out(str(why) if isinstance(why, InputError) else filled("{0}: {1}", printable(path, 200), why))
        return False
    return True


def lint_rules(catalog: Sequence[Check], *, has_launch: bool = True, has_table: bool = False) -> list[str]:
    """The names of the checks that need nothing but the training, its launch and its rank table."""
    of_table = (RankTable, RankTableFile) if has_table else ()
    return of_launch_alone(catalog, (TrainingLaunch, *((LaunchConfig,) if has_launch else ()), *of_table))


def launches_of(
    paths: Sequence[str], launch_line: Sequence[str], options: LaunchOptions, environ: Mapping[str, str]
) -> tuple[list[LaunchOptions], list[str]]:
    """The launch of the command, else those of the job scripts that have one; and what is not known of them."""
    launches: list[LaunchOptions] = []
    notes: list[str] = []
    if launch_line:
        return [of_launch_line(launch_line, environ).complete(options)], notes
    for path in paths:
        if path.endswith(_OTHERS):
            continue
        try:
            follow, read_file = followed(path, environ)
            environments = launches_of_job_script(path, environ, follow, read_file)
        except InputError:
            continue  # no launch line: what reads the training says so
        launches += [_with_places(environment, path, options, read_file) for environment in environments]
        notes += [note for environment in environments for note in environment.not_followed]
    return launches, notes


def _with_places(environment: JobEnvironment, path: str, options: LaunchOptions, read_file: ReadFile) -> LaunchOptions:
    line = environment.line.line if environment.line else 1
    by_name = places(read_text(path), printable(path, 200), line)
    for name in environment.sourced[:MAX_FILES]:
        text = read_file(name) or ""
        by_name = {**places(text, os.path.normpath(name), text.count("\n") + 1), **by_name}
    if inner := environment.inner:
        within = places(inner.text, printable(os.path.normpath(inner.path), 200), inner.line.line)
        by_name |= {name: place if ":" in name else f"{place}, {by_name['']}" for name, place in within.items()}
    return msgspec.structs.replace(environment.complete(options), places=by_name)
