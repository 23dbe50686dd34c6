"""Asks the shell of a job script's first line whether it takes the script's text."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping

from doctor.engine.bounded_read import plain_lines, read_bounded_text
from doctor.environment.launch_trials import TRIAL, WAITS, run_trial, trial_message
from doctor.job.launch_line.model import OptionProblem


def shell_refused(path: str, environ: Mapping[str, str]) -> tuple[OptionProblem, ...]:
    """What the ``sh`` of a script's first line says of its text, which it reads and does not run; dash is no bash.

    A warning, unless that shell runs this process: a user may start the script by ``bash``.
    """
    text = read_bounded_text(path) if os.path.isfile(path) else ""
    match = re.match(r"#! ?(/\S{0,100}/(?:da)?sh)[ \t]*(?:-[a-z]+)?\n", text)
    if match is None or "extglob" in text:
        return ()
    shell, sets = match[1], re.search(r"(?m)^set -[a-z]*o pipefail\b", text)
    for words in [["-n", path], *([["-c", "set -o pipefail"]] if sets else [])]:
        done = run_trial([shell, *words], environ)
        if done is not None and done.returncode:
            reason = trial_message(plain_lines(done.stderr.decode("utf-8", "replace")))
            runs_this = os.path.realpath(f"/proc/{os.getppid()}/exe") == os.path.realpath(shell)
            return (
                OptionProblem(
                    os.path.basename(shell), TRIAL if runs_this else WAITS, reason, shlex.join([shell, *words])
                ),
            )
    return ()
