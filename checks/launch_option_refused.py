from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.job import LaunchConfig
from doctor.job.job_script.directives import PATH, UNIT
from doctor.job.job_script.set_up import BLOCK, FOLDER, FUNCTION, MODULES, PYTHON
from doctor.job.launch_line.call_parts import FIRST_HOST, PORT
from doctor.job.launch_line.model import IN_BACKGROUND, NOT_BASH, OWN_DEVICES, OWN_MEMORY, OWN_NETWORK
from doctor.job.shell.name_mistakes import BLANKS, INPUT, OF_SCRIPT
from doctor.job.variable_names import is_misspelt

ENDS = ("exit", "exec", "false")
CASES = {
    "PROGRAM": "An interpreter",
    "--allow-run-as-root": "A missing flag",
    "as a command": "A line that ends",
    **dict.fromkeys(ENDS, "An end"),
    **dict.fromkeys(("#SBATCH", "#PBS"), "A late line"),
    NOT_BASH: "A shell",
    OWN_NETWORK: "A network",
    OWN_MEMORY: "A container",
    OWN_DEVICES: "A container",
    **dict.fromkeys(("--nv", "--gpu"), "A container"),
    **dict.fromkeys(("network_mode", "shm_size", "gpus"), "A service"),
    IN_BACKGROUND: "A foreground",
    OF_SCRIPT: "A variable",
    INPUT: "An input",
    BLANKS: "A test",
    "wait": "A background",
    **dict.fromkeys((FUNCTION, MODULES, PYTHON, UNIT, PATH, FOLDER, FIRST_HOST, PORT, BLOCK), "An environment"),
}
"""By option or value, the case of its remedy, where it is not a value to correct."""


@check(severity=ERROR, area="ranks")
def launch_option_refused(launch: LaunchConfig) -> Iterator[Finding]:
    """The launchers of the launch line accept its options.

    ## Why it matters
    The launcher ends before it starts a rank; of a host whose number the job does not have, torchrun waits for its
    rendezvous until it times out. Where only this host has such a line, the launchers of the other hosts
    wait for this one until their timeout.

    ## What to do
    Correct the launch line.
    - A wrong name: write {expected} in place of {option}.
    - A wrong value: {observed} is no value of {option} of {launcher}; expected {expected}.
    - A line that ends: write {expected}: without it {launcher} runs {option} as a command of its own.
    - An end: move `{option}` {observed} of the script behind the launch line, or delete it.
    - An interpreter: write the program without {observed} before it, as in `torchrun train.py`.
    - A missing option: add `{option} <address>` to the launch line; on the host of rank 0, `hostname -I | cut
      -d' ' -f1` prints its address. `accelerate env` shows what the
      configuration file gives.
    - A missing flag: add `{option}` to the launch line, before the program.
    - A late line: write `{expected}` above the first command of the script.
    - A shell: write `#!/bin/bash` in place of the first line, and start the script by bash or by its own name.
    - A network: write `--network host` behind {launcher}, or give the container a network that spans the hosts.
    - A foreground: write `&` {expected}, and `wait` behind the last line that starts a host.
    - A background: write `wait` {expected}.
    - An environment: write `{expected}` {reason}.
    - A variable: `export {expected}` before the launch line; into a container `docker run -e {expected}`; to a shell on
      another host its value, by double quotes around the text in place of single ones.
    - An input: write `-n` {expected}.
    - A test: write a blank before and behind {expected}.
    - A container: write `{option}` with what is expected behind {launcher}; of memory `--ipc host` does, too.
    - A service: write `{option}: {expected}` into the service.
    - A missing size: add `{option} {expected}` to the launch line, before the program.
    - By trial: correct what the message names, in the launch line or the environment. `{trial}` asks {launcher} again,
      and does not start the program.

    ## Source
    PyTorch, torchrun; Slurm, srun(1); Open MPI, mpirun(1); MindSpore, msrun; DeepSpeed and Accelerate, their launchers:
    the types and ranges of the options. Of a line that starts with mpirun of Open MPI or srun, the launcher itself is
    asked here: for ranks on this host alone mpirun starts `/bin/true` in their place, else `mpirun --do-not-launch`
    maps the ranks and starts none; srun starts `/bin/true` in the allocation of this shell; measured with Open MPI
    4.1.4 and Slurm 22.05. What would wait for busy nodes is a warning.
    Through a job script that runs next on this host, bash goes itself, starts no program of it, and says whether it
    comes to the line: commands that only compute a value run, and so do those that bash does not find. A folder of
    `cd`, a file that the script sources, a limit, a variable, `set -e`, conditions, loops and functions decide as they
    do in the job. Before a line that
    runs next, sudo, runuser and setpriv are asked whether their user finds the launcher, may start its interpreter, and
    has its torch; sudo does not ask for a password. Accelerate of
    several machines without an address meets at "None:None" (https://github.com/huggingface/accelerate/issues/2240); it
    is a warning, as its default configuration may have one.
    """
    if not launch.launch_line:
        raise Skip("no launch line was given: doctor check HOSTS -- COMMAND")
    for launcher, option, value, right, kind in launch.problems_of("refused", "beyond"):
        expected = f"--{right[2:].replace('-', '_')}" if right.startswith("--") and "_" in option else right
        expected = right if expected == option else expected
        is_name = is_misspelt(option.lower(), expected.lower())
        case = CASES.get(option, CASES.get(value, "A wrong value"))
        text = "{launcher} refuses {option} {observed}; expected {expected}"
        if option in ENDS:
            text = "the script does not reach the launch line: {option} {observed}; expected {expected}"
        if kind == "beyond":
            text = "{launcher} gets {option} {observed}, which no host of the job has; expected {expected}"
        misspelt = "{launcher} refuses {option}, which is misspelt; expected {expected}"
        yield Finding(
            misspelt if is_name and not value else text,
            launcher=launcher,
            option=option,
            observed=value or "without a value",
            expected=expected,
            case="A wrong name" if is_name else case,
        )
    for launcher, _, message, trial, kind in launch.problems_of("trial", "waits"):
        if not message:
            raise Unreadable(
                filled("{0} did not answer in time whether it starts the launch line: `{1}`", launcher, trial)
            )
        yield Finding(
            "{launcher} does not start the launch line: {observed}",
            launcher=launcher,
            observed=message,
            trial=trial,
            case="By trial",
        ).as_warning(kind == "waits")
    for launcher, option, value, expected, kind in launch.problems_of("needed", "wanted"):
        with_reason = "{launcher} is not given {option}; expected {expected}, {reason}"
        if option == NOT_BASH:
            with_reason = "{launcher} may not run the script: {reason}; expected {expected} in its first line"
        yield Finding(
            with_reason if value else "{launcher} is not given {option}; expected {expected}",
            launcher=launcher,
            option=option,
            expected=value or expected,
            observed="none",
            case=CASES.get(option, "A missing size" if value else _case_of(expected)),
            **({"reason": expected} if value else {}),
        ).as_warning(kind == "wanted")
    if launch.is_of_job_script and launch.unread_options:
        raise Unreadable(
            filled("set the variable in {0} before the command: nothing that was read does", launch.unread_options)
        )


def _case_of(expected: str) -> str:
    """Of an option without a value."""
    return "A missing flag" if expected.startswith("before ") else "A missing option"
