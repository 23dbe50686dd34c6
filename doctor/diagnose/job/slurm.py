"""A job of Slurm: its state, its hosts and its output files, from ``scontrol``, else from ``sacct``.

Sources: scontrol(1), "show job" and "write batch_script"; sacct(1), "JOB STATE CODES"; sbatch(1), "filename pattern";
srun(1), "IO Redirection". Slurm forgets a job ``MinJobAge`` seconds after its end (slurm.conf(5)).
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress

from doctor.diagnose.fetch.collect import glob_quoted
from doctor.diagnose.job import JobPlace
from doctor.engine.errors import InputError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.environment.host_list import RunCommand, run_command
from doctor.hosts.nodeset import InventoryError, expand_nodeset

_NUMBER = re.compile(r"\d{1,10}(?:_\d{1,7})?(?:\+\d{1,4})?")
_FIELD = re.compile(r"^ {2,4}(StdOut|StdErr|WorkDir|Command|NodeList|BatchHost)=(.*)$", re.MULTILINE)
_HEAD = re.compile(
    r"^JobId=(?P<number>\d{1,10})(?: HetJobId=(?P<first>\d{1,10}) HetJobOffset=\d{1,10})?"
    r"(?: ArrayJobId=(?P<array>\d{1,10}) ArrayTaskId=(?P<task>\d{1,10}))?"
    r"(?: .{0,300})? JobName=(?P<name>.*)$"
)
_USER = re.compile(r"^ {2,4}UserId=([^\s(]+)\(", re.MULTILINE)
_STATE = re.compile(r"^ {2,4}JobState=(\w+)", re.MULTILINE)
_ENDED = frozenset(
    ["BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"]
)
_SACCT_FIELDS = "JobID,State,ExitCode,NodeList,Start,End,WorkDir"
_MAX_NODES = 10_000
_OUTPUT_OPTIONS = ("-o", "--output", "-e", "--error")


def read_slurm(number: str, run: RunCommand = run_command) -> JobPlace:
    """The job with this id.

    Raises: ValueError for another form; InputError (exit code 78) for a job that Slurm does not know.
    """
    if not _NUMBER.fullmatch(number):
        raise ValueError(number)
    job = JobPlace(title=f"Slurm job {number}", number=number)
    problems = [_ask_controller(job, run), _ask_accounting(job, run)]
    if not job.texts:
        text = "--job slurm:{0}: {1}; expected a job that Slurm knows, or its log files and hosts themselves"
        raise InputError(filled(text, number, joined("; ", (problem for problem in problems if problem))))
    job.ended = job.state in _ENDED
    if problems[0]:
        job.notes.append(filled("{0}; its state is from sacct", problems[0]))
    _add_script_outputs(job, run)
    if job.state == "NODE_FAIL" and job.hosts:
        with suppress(OSError):
            command = ["scontrol", "show", "node", "--oneliner", ",".join(job.hosts)]
            job.texts["scontrol show node"] = run(command)
    if not job.outputs:
        job.notes.append("Slurm does not say where the job's output is; give the files as PATH")
    return job


def _ask_controller(job: JobPlace, run: RunCommand) -> str:
    """Reads ``scontrol show job``. Returns why it does not know the job."""
    try:
        output = run(["scontrol", "show", "job", job.number])
    except OSError as error:
        return _reason("scontrol", error)
    job.texts[f"scontrol show job {job.number}"] = output
    states = []
    for block in output.split("\n\n"):
        head = _HEAD.match(block.lstrip("\n").partition("\n")[0])
        if head is None:
            continue
        job.variables.setdefault("SLURM_JOB_ID", []).extend(filter(None, head.group("number", "first")))
        states += _STATE.findall(block)[:1]
        fields = {name: value for name, value in _FIELD.findall(block) if value not in ("", "(null)")}
        job.batch_host = job.batch_host or fields.get("BatchHost", "")
        job.folder = job.folder or fields.get("WorkDir", "")
        _add_hosts(job, fields.get("NodeList", ""))
        for name in ("StdOut", "StdErr"):
            if fields.get(name):
                _add_output(job, fields[name], fields.get("WorkDir", ""), block)
    job.state = next((state for state in states if state not in _ENDED), states[-1] if states else "")
    return ""


def _ask_accounting(job: JobPlace, run: RunCommand) -> str:
    """Reads ``sacct``. Returns why it does not know the job."""
    argv = ["sacct", "--jobs", job.number, "--parsable2", "--duplicates", f"--format={_SACCT_FIELDS}"]
    try:
        output = run(argv)
    except OSError as error:
        return _reason("sacct", error)
    rows = [line.split("|") for line in output.splitlines()[1:]]
    rows = [row for row in rows if len(row) == _SACCT_FIELDS.count(",") + 1]
    if not rows:
        return filled("sacct knows no job {0}", job.number)
    job.texts[f"sacct --jobs {job.number}"] = output
    of_job = [row for row in rows if "." not in row[0]] or rows
    job.state = job.state or of_job[-1][1].partition(" ")[0]
    job.folder = job.folder or next((row[6] for row in reversed(of_job) if row[6].startswith("/")), "")
    if job.hosts:
        return ""
    for row in of_job:
        _add_hosts(job, row[3])
    if job.folder:
        # sacct tells of no output file: the default of sbatch, and what the batch script asks for.
        array, _, task = job.number.partition("_")
        name = f"slurm-{array}_{task}.out" if task else f"slurm-{array.partition('+')[0]}.out"
        job.outputs.append(f"{glob_quoted(job.folder)}/{name}")
        job.notes.append(
            "sacct does not say where the output is: looked for sbatch's default and the batch script's names"
        )
    return ""


def _reason(program: str, error: OSError) -> str:
    text = str(error)
    if "Invalid job id" in text:
        return "scontrol no longer knows the job (MinJobAge)"
    if "accounting storage is disabled" in text.lower():
        return "there is no accounting (sacct)"
    return printable(text, 200) if text.startswith(program) else filled("{0}: {1}", program, printable(text, 200))


def _add_hosts(job: JobPlace, text: str) -> None:
    if not text or text == "None assigned":
        return
    try:
        hosts = expand_nodeset(text, "the job's node list")
    except InventoryError as error:
        job.notes.append(printable(str(error), 200))
        return
    job.hosts += [host for host in hosts[:_MAX_NODES] if host not in job.hosts]


def _add_script_outputs(job: JobPlace, run: RunCommand) -> None:
    """Output files that the batch script's srun lines and #SBATCH lines name."""
    script = ""
    for argv in (["scontrol", "write", "batch_script", job.number, "-"], ["sacct", "-j", job.number, "--batch-script"]):
        with suppress(OSError):
            script = run(argv)
        if "#!" in script:
            break
    output = job.texts.get(f"scontrol show job {job.number}", "")
    for pattern in script_outputs(script):
        _add_output(job, pattern, job.folder, output)


def script_outputs(script: str) -> list[str]:
    r"""The names that ``srun -o`` and ``#SBATCH -o`` lines give to output files; those of shell variables are left out.

    >>> script_outputs("#!/bin/sh\nsrun --output=log/%t.out -e log/%t.err python train.py")
    ['log/%t.out', 'log/%t.err']
    """
    names: list[str] = []
    for line in script.replace("\\\n", " ").splitlines()[:10_000]:
        if not re.match(r"\s*(?:exec |time )?srun\s|#SBATCH\s", line):
            continue
        try:
            arguments = shlex.split(line.removeprefix("#SBATCH"), comments=not line.startswith("#"))
        except ValueError:
            continue
        for index, word in enumerate(arguments):
            option, sign, value = word.partition("=")
            if option not in _OUTPUT_OPTIONS:
                continue
            name = value if sign else (arguments[index + 1] if index + 1 < len(arguments) else "")
            name = name.replace("$SLURM_JOB_ID", "%j").replace("${SLURM_JOB_ID}", "%j")
            if name and "$" not in name and "`" not in name and name not in ("none", "all"):
                names.append(name)
    return names


def _add_output(job: JobPlace, pattern: str, folder: str, block: str) -> None:
    path = output_glob(pattern, job.number, block)
    if not path.startswith("/"):
        if not folder.startswith("/"):
            return
        path = f"{glob_quoted(folder)}/{path}"
    if path not in job.outputs and path != "/dev/null":
        job.outputs.append(path)


def output_glob(pattern: str, number: str, output: str = "") -> str:
    r"""The pattern of files that a filename pattern of Slurm stands for; what is only known of a task becomes ``*``.

    >>> output_glob("log/%j-%2t-%N.out", "77")
    'log/77-*-*.out'
    """
    head = _HEAD.match(output.lstrip("\n").partition("\n")[0])
    array, _, task = number.partition("_")
    values = {
        "%": "%",
        "j": head["number"] if head else array,
        "A": (head["array"] or head["number"]) if head else array,
        "a": (head["task"] if head and head["task"] else task) or "*",
        "x": head["name"] if head else "*",
    }
    user = _USER.search(output)
    values["u"] = user[1] if user else "*"
    values["J"] = f"{values['j']}*"

    def conversion(match: re.Match[str]) -> str:
        width, letter = match[1], match[2]
        value = values.get(letter, "*")
        if value == "*" or letter == "J":
            return value
        return glob_quoted(value.zfill(int(width)) if width and value.isdecimal() else value)

    parts = re.split(r"(%\d{0,2}[%A-Za-z])", pattern)
    return "".join(
        re.sub(r"^%(\d{0,2})([%A-Za-z])$", conversion, part) if part.startswith("%") else glob_quoted(part)
        for part in parts
    )
