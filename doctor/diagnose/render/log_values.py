"""The placeholders of a signature's advice whose values the logs show: ``hccn_tool -i N -link -g`` for device 3.

A log is untrusted: a value is used only where it has the form of a device, host, port, job or variable, which no shell
reads as anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from doctor.diagnose.diagnosis import Culprit, Diagnosis, hosts_of
from doctor.diagnose.events import Event
from doctor.diagnose.exception_actions import package_of
from doctor.engine.texts import filled
from doctor.job.variable_names import documented_variables
from doctor.report.layout.advice import COMMAND, mark_personal_words, with_tool_paths

HOST_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}")
"""Of a host's name or address, which no shell and no command reads as anything else."""
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_JOB = re.compile(r"[0-9]{1,20}(?:[+._][0-9]{1,20})?")
_FILE_NAME = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]{0,200}")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,60}(?:(?:[<>=~!]=|[<>])[0-9][0-9.]{0,20},?){0,2}")
_PID = re.compile(r"[1-9][0-9]{0,9}")
_DEVICE = re.compile(r"[0-9]{1,3}")
_CHECK = re.compile(r"[a-z]{3,20}(?:-[a-z]{1,20}){1,6}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{1,60}")
_FIELDS = {
    "HOST": (("host_name", "culprit_host", "culprit_hosts"), HOST_FORM),
    "NODE": (("culprit_host", "culprit_hosts"), HOST_FORM),
    "PORT": (("port",), _PORT),
    "IP": (("ip",), HOST_FORM),
    "JOB": (("slurm_job", "job"), _JOB),
    "N": (("culprit_device", "device", "dev"), _DEVICE),
    "FILE": (("path",), _FILE_NAME),
    "PID": (("culprit_pid",), _PID),
    "POD": (("culprit_pod",), HOST_FORM),
    "VARIABLE": (("setting",), _VARIABLE),
    "CHECK": (("check",), _CHECK),
    "MB": (("needed_mb",), _PORT),
    "FOLDER": (("folder",), _FILE_NAME),
    "PACKAGE": (("package",), _REQUIREMENT),
}
"""Of each placeholder the named groups of a pattern that have its value, the first that is there, and its form."""
MAX_NODES = 16
"""In one command; Slurm's take a list."""
_COMMANDS = {
    "DEFAULT_INTERFACE": r"$(ip route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)",
    "END_NPU_PROCESSES": "fuser -k -TERM /dev/davinci[0-9]*",
    "END_GPU_PROCESSES": "nvidia-smi --query-compute-apps=pid,name --format=csv,noheader | "
    "grep -ve nvidia-cuda-mps -e nv-hostengine | cut -d, -f1 | xargs -r kill",
}
"""What prints the interface of the host's default route, and what ends all that computes on its devices."""
_BEFORE, _AFTER = r"(?<![A-Za-z0-9_=./:-])", r"(?![A-Za-z0-9_=./:-])"
_PLACES = {
    "HOST": rf"{_BEFORE}HOST{_AFTER}|(?<= )HOST(?=:<)",
    "NODE": rf"(?:(?<=ode[Nn]ame=)|(?<=--exclude=)|{_BEFORE})NODE{_AFTER}",
    "NODES": rf"(?:(?<=ode[Nn]ame=)|(?<=--exclude=)|(?<=srun -w )|(?<=show node )|(?<=doctor check ))NODE{_AFTER}",
    "PORT": rf"{_BEFORE}PORT{_AFTER}|(?<= )PORT(?=/tcp)",
    "IP": rf"(?<=-zv )IP{_AFTER}",
    "JOB": rf"(?:(?<=-j )|(?<=show job ))JOB{_AFTER}",
    "N": rf"(?<=-i )N{_AFTER}",
    "FILE": rf"(?:(?<=ls -l )|(?<=head -1 )|(?<=chmod \+x )|(?<=chmod a\+r )|(?<=json\.tool )|(?<=\$//' )|(?<=-T )"
    rf"|(?<=-v f=))FILE{_AFTER}"
    r"|(?<=:)FILE(?= FILE`)|(?<=:FILE )FILE",
    "PID": rf"(?:(?<=worker-\*-)PID(?=\.)|(?<=--pid )PID{_AFTER})",
    "POD": rf"(?:(?<=describe pod )|(?<=delete pod )|(?<=logs --previous )|(?<=get pod ))POD{_AFTER}",
    "VARIABLE": rf"(?<=unset )VARIABLE{_AFTER}",
    "CHECK": rf"(?<=doctor explain )CHECK{_AFTER}",
    "FOLDER": rf"(?<=mkdir -p )FOLDER{_AFTER}",
    "PACKAGE": "(?<=')PACKAGE(?=')",
    "HOSTS": r"(?:(?<=doctor check )|(?<=doctor net )|(?<=doctor smoke )|(?<=doctor smoke --native ))(?:HOSTS|<hosts>)",
    "LOG": "<log>",
    "MB": "<MB>",
}
"""Where a placeholder stands: in a command, and not in a sentence."""
_SUBMITTED = re.compile(r"`sbatch(?: (--[a-z-]+)(?:=([^` ]+))?)? (?:<job>|JOB)\.sh`")
"""A job submitted again, with at most one option."""
_SLURM_FIELDS = {
    "--exclude": "excnodelist=",
    "--mem": "minmemorynode=",
    "--time": "timelimit=",
    "--no-requeue": "requeue=0",
}
"""Of sbatch's options: the field of a job that Slurm still has (scontrol(1), "SPECIFICATIONS FOR UPDATE COMMAND")."""
_IN_ENVIRONMENT = {"--mem=0": "SBATCH_MEM_PER_NODE=0", "--no-requeue": "SBATCH_NO_REQUEUE=1"}
"""Of sbatch's options: the variable that has the same effect (sbatch(1), "INPUT ENVIRONMENT VARIABLES")."""
_SLURM_JOBS = (
    re.compile(r"\bStepId=(\d{1,10})\b"),
    re.compile(r"\*{3} (?:JOB|STEP) (\d{1,10})\b"),
    re.compile(r"(?:^|[/!:])slurm-(\d{1,10})(?=[._/!-]|$)"),
)
"""Lines of slurmstepd and srun, and sbatch's own name of an output file. An element of an array is no number alone."""
_REQUEST = re.compile(r"\b(?:[Pp]lease|Try|[Yy]ou (?:can|could|may|should|must)) (?:set|setting|export|use|using) ")
_SETTING = re.compile(
    r"(?<![A-Za-z0-9_])([A-Z][A-Z0-9_]{3,60})=[\"']?([0-9]{1,9}|[Tt]rue|[Ff]alse|TRUE|FALSE)(?![\w.:])"
)
_SHOWS_MORE = re.compile("DEBUG|LOG|BLOCKING|TRACE|VERBOSE")
_NOWHERE = r"(?!)"


def values_in_logs(events: Iterable[Event], culprits: Iterable[Culprit] = ()) -> dict[str, str]:
    """By placeholder the one value that all lines and culprits agree on; without those that are not known.

    >>> values_in_logs([], [Culprit(3, "n1", 4)])
    {'HOST': 'n1', 'NODE': 'n1', 'N': '4'}
    """
    lines, blamed = tuple(events), tuple(culprits)
    places: dict[str, list[str]] = {
        "HOST": [culprit.host for culprit in blamed],
        "N": ["" if culprit.device is None else str(culprit.device) for culprit in blamed],
    }
    places["NODE"] = places["HOST"]
    values_by_placeholder = {}
    for placeholder, (names, form) in _FIELDS.items():
        in_lines = [next((value[name] for name in names if value.get(name)), "") for value in map(_with_package, lines)]
        values = {value for value in in_lines if value} or set(places.get(placeholder, ()))
        if 1 < len(values) <= MAX_NODES and placeholder == "NODE" and all(map(form.fullmatch, values)):
            values_by_placeholder["NODES"] = ",".join(sorted(values))
        elif len(values) == 1 and form.fullmatch(value := values.pop()):
            values_by_placeholder[placeholder] = value
    return values_by_placeholder


def _with_package(event: Event) -> Mapping[str, str]:
    """The values of a line; ``package``: what pip installs for the module or package that it names.

    A log is untrusted, and an index has packages under names that look like others: only those of the table.
    """
    name = event.values.get("module") or event.values.get("package", "")
    package = package_of(name.replace("`", ""))
    return {**event.values, "package": package and f"{package}{event.values.get('needed', '')}".replace(" ", "")}


def slurm_job(diagnosis: Diagnosis) -> dict[str, str]:
    """As ``JOB``, the number of the Slurm job whose logs these are; empty where they name none, or several."""
    events = [event for cause in diagnosis.causes for event in cause.evidence]
    texts = [*(event.text for event in events), *(summary.name for summary in diagnosis.files)]
    numbers = {number for pattern in _SLURM_JOBS for text in texts for number in pattern.findall(text)}
    numbers |= {value for event in events if (value := event.values.get("slurm_job", ""))}
    return {"JOB": numbers.pop()} if len(numbers) == 1 and all(map(_JOB.fullmatch, numbers)) else {}


def all_hosts(diagnosis: Diagnosis) -> set[str]:
    """All hosts that are named: by culprits, by ranks that waited, and as the origin of a file."""
    culprits = [culprit for cause in diagnosis.causes for culprit in cause.culprits]
    culprits += [culprit for item in diagnosis.waiting for culprit in item.culprits]
    of_files = {summary.host for summary in diagnosis.files if summary.host}
    return of_files.union(hosts_of(culprits), *map(all_hosts, diagnosis.earlier))


def places_in_logs(diagnosis: Diagnosis, evidence: Iterable[Event]) -> dict[str, str]:
    """``HOSTS``, where at least two are known and can be typed, and ``LOG``, the one file that has the evidence."""
    hosts = sorted(all_hosts(diagnosis))
    files = {diagnosis.files[event.file].name for event in evidence}
    are_few = 1 < len(hosts) <= 4 * MAX_NODES and all(map(HOST_FORM.fullmatch, hosts))
    values = {"HOSTS": ",".join(hosts)} if are_few else {}
    return values | ({"LOG": files.pop()} if len(files) == 1 and all(map(_FILE_NAME.fullmatch, files)) else {})


def requested_settings(evidence: Iterable[Event], fix: Iterable[str]) -> list[str]:
    r"""What a message asks its reader to set, as a command, where the fix has none of it.

    A log is untrusted: only switches and numbers of variables that libraries read, and no address, file or plugin. What
    only shows more of the failure is no remedy.

    >>> line = Event("", 0, 0, 'Please set `NCCL_P2P_DISABLE="1"` and `NCCL_IB_DISABLE="1" or use accelerate', {})
    >>> requested_settings([line], ["use another version"])[0][-45:]
    '`export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1`'
    """
    pairs: dict[str, str] = {}
    for event in evidence:
        if request := _REQUEST.search(event.text):
            pairs.update(_SETTING.findall(event.text[request.end() :]))
    commands = " ".join(fix)
    settings = [
        f"{name}={value}"
        for name, value in pairs.items()
        if name in documented_variables() and name not in commands and not _SHOWS_MORE.search(name)
    ]
    text = "the message asks for it, in the job's script: `export {0}`"
    return [filled(text, " ".join(settings))] if settings else []


_PROGRAM_LINE = re.compile(r"(?:[A-Za-z0-9_.-]{1,100}/)?([A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.py):([1-9][0-9]{0,5})")
_AROUND = 5
"""Lines before and behind the one of a traceback, which show what it is in."""


def program_line(evidence: Iterable[Event]) -> list[str]:
    """What prints the line of the program at which the one traceback of the evidence ends.

    >>> program_line([Event("", 0, 0, "", {"place": "job/data.py:23"})])[0][:61]
    'the line to correct is 23 of data.py, or what calls it: `find'
    """
    places = {event.values["place"] for event in evidence if event.values.get("place")}
    match = _PROGRAM_LINE.fullmatch(places.pop()) if len(places) == 1 else None
    if match is None:
        return []
    name, line = match[1], int(match[2])
    text = (
        "the line to correct is {0} of {1}, or what calls it: `find . -name {1} | xargs -r sed -n '{2},{3}p'` in the "
        "folder of the program prints it"
    )
    return [filled(text, line, name, max(1, line - _AROUND), line + _AROUND)]


def fill_advice(text: str, values: Mapping[str, str]) -> str:
    """The text with the values that are known; what a command leaves to its reader is marked.

    >>> fill_advice("`hccn_tool -i N -link -g`, `doctor check HOSTS`", {"N": "3"})
    '`/usr/local/Ascend/driver/tools/hccn_tool -i 3 -link -g`, `doctor check <hosts>`'
    """
    return with_tool_paths(mark_personal_words(fill_values(text, values)))


def fill_values(text: str, values: Mapping[str, str]) -> str:
    """The text with the values that are known.

    >>> fill_values("hccn_tool -i N -link -g shows UP for N cards", {"N": "3"})
    'hccn_tool -i 3 -link -g shows UP for N cards'
    >>> fill_values("`sbatch <job>.sh`", {"JOB": "77"}), fill_values("`sbatch --mem=0 JOB.sh`", {"JOB": "77"})[1:58]
    ('`scontrol requeue 77`', 'scontrol requeuehold 77 && scontrol update jobid=77 minme')
    """
    text = with_commands(text)
    if "N" not in values:
        text = COMMAND.sub(_of_each_device, text)
    for placeholder, value in values.items():
        text = re.sub(_PLACES.get(placeholder, _NOWHERE), lambda _, value=value: value, text)  # type: ignore[misc]
    job = values.get("JOB", "")
    return _SUBMITTED.sub(lambda match: _started_again(match, job), text)


def _of_each_device(command: re.Match[str]) -> str:
    """A command that only looks, or brings up, for all NPUs or GPUs of a host where the log does not name the one.

    >>> fill_values("`hccn_tool -i N -link -g` shows UP", {})[-43:], fill_values("`nvidia-smi -r -i N`", {})
    ('do hccn_tool -i $n -link -g; done` shows UP', '`nvidia-smi -r`')
    """
    text = command[0]
    if " -i N" not in text or " reset " in text or "<" in text:
        return text
    if "nvidia-smi" in text:
        return text.replace(" -i N", "")
    return f"`for n in $(ls /dev/davinci[0-9]* | tr -dc '0-9\\n'); do {text[1:-1].replace(' -i N', ' -i $n')}; done`"


def with_commands(text: str) -> str:
    """The text with the commands of `_COMMANDS` for the names that stand for them."""
    return re.sub("|".join(_COMMANDS), lambda name: _COMMANDS[name[0]], text)


def _started_again(submitted: re.Match[str], job: str) -> str:
    """The job that Slurm has, back in its queue, instead of a script whose name no log shows."""
    option, value = submitted[1], submitted[2] or ""
    if not job:
        variable = _IN_ENVIRONMENT.get(f"{option}={value}".rstrip("="))
        return f"`export {variable}`" if variable else submitted[0]
    if not option:
        return f"`scontrol requeue {job}`"
    if option not in _SLURM_FIELDS:
        return submitted[0]
    field = f"{_SLURM_FIELDS[option]}{value}"
    return f"`scontrol requeuehold {job} && scontrol update jobid={job} {field} && scontrol release {job}`"
