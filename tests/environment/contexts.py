"""Job contexts of example environments: those that launchers and schedulers really set."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from doctor.environment.job_context import JobContext, choose_scope, detect
from doctor.environment.launchers import launchers
from doctor.environment.schedulers import schedulers
from doctor.environment.variables import parse_environment
from tests.checks.tables import a2

Environ = dict[str, str]
Files = Mapping[str, str | None]

TABLE = json.dumps(a2())
INITIALIZING = json.dumps({"status": "initializing", "server_list": [], "server_count": "0", "version": "1.0"})
TABLE_HOSTS = ("172.16.0.110", "172.16.0.111")


def reader(files: Files) -> Callable[[str], str]:
    """Reads ``files``, text by path. None: a folder."""

    def read(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory", path)
        text = files[path]
        if text is None:
            raise IsADirectoryError(21, "Is a directory", path)
        return text

    return read


def context(environ: Environ, files: Files | None = None, outputs: Mapping[str, str] | None = None) -> JobContext:
    """``outputs``: what commands print; all others are not installed."""
    return detect(environ, reader(files or {}), run=printer(outputs or {}))


def printer(outputs: Mapping[str, str]) -> Callable[[Sequence[str]], str]:
    """Runs ``outputs``, text by command."""

    def run(argv: Sequence[str]) -> str:
        command = " ".join(argv)
        if command not in outputs:
            raise OSError(f"{argv[0]} is not installed")
        return outputs[command]

    return run


def rank_context(environ: Environ) -> JobContext:
    """As a program of ranks sees it, which must have a launcher."""
    detected = detect(environ, reader({}), as_rank=True)
    assert detected.launcher
    return detected


def fields(detected: JobContext, names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(detected, name) for name in names}


def summary(detected: JobContext) -> tuple[str, str, str]:
    """What a user sees of a context: the sentence, the tag, and what the process checks."""
    return detected.description, detected.tag, choose_scope(detected)


def launcher_examples() -> Iterator[tuple[str, Environ]]:
    """The sample of every launcher; empty where no variable shows it."""
    for launcher in launchers():
        yield launcher.name, _variables(launcher.sample)


def scheduler_examples() -> Iterator[tuple[str, Environ]]:
    """The sample of every scheduler."""
    for scheduler in schedulers():
        yield scheduler.name, _variables(scheduler.sample)


def launcher_sample(name: str) -> Environ:
    return dict(launcher_examples())[name]


def scheduler_sample(name: str) -> Environ:
    return dict(scheduler_examples())[name]


def _variables(text: str) -> Environ:
    return parse_environment(text.strip(), "the sample") if text else {}
