"""The lines of a job script, or the launch line, as they are when a finding is corrected. Pure.

A line is written only where the finding itself has the value that belongs there; else its remedy says what is missing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from doctor.engine.quantities import parse_span
from doctor.engine.result import Finding, Outcome
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import filled
from doctor.job.launch_config import FIRST_OF_SLURM, HCCL_BASE_PORT
from doctor.job.variable_names import meant_key
from doctor.job.variables import RENDEZVOUS_PORT, TORCH_PORT

MAX_LINE = 600
"""Characters of a line that is printed again."""
SLURM = "#SBATCH"
"""A name in `LaunchOptions.places` of a job script for Slurm."""
_PORTS = {
    "MASTER_PORT": str(TORCH_PORT),
    "HCCL_IF_BASE_PORT": str(HCCL_BASE_PORT),
    "--master-port": str(TORCH_PORT),
    "--main-process-port": str(TORCH_PORT),
}
"""What these launchers and libraries take where nothing is given."""
_SWITCHES = ("yes", "true", "on")
_NUMERALS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_OWN_ADDRESS = r"(?<![\w.])(?:localhost|127\.0\.0\.1)(?![\w.])"
_FIRST_ADDRESS = "$(hostname -I | cut -d' ' -f1)"
_TASK_NUMBERS = {"srun": "$SLURM_NODEID", "mpirun": "$OMPI_COMM_WORLD_RANK", "mpiexec": "$PMI_RANK"}
_INNER = r"(?:torchrun|msrun|accelerate launch|python3? -m torch\.distributed\.(?:run|launch))"
_NODE_RANK = re.compile(r" --(?:node|machine)[-_]rank(?:=| )(?:\"[^\"]*\"|\S+)")
_OWN_VARIABLE = re.compile(r"\$(?!\{?SLURM_|\{?OMPI_|\{?PMI_|$|[\s\"'])")
"""What the shell on the hosts may not have."""
_STEP_SIZE = re.compile(r"\bsrun\b.*\s(?:-[nN]|--n(?:tasks|odes))")
_REPLACED = re.compile(r"(\S{1,200}) (\d{1,9}) in place of (\d{1,9})\b")
"""What `doctor.job.training.View.edit` says of an option."""
_EXPORTED = re.compile(r"`export ([^`]{1,300})`")
_ASSIGNMENT = re.compile(r"(?<![A-Za-z0-9_])([A-Z_][A-Z0-9_]{0,60})=((?:\$\([^()]{0,200}\)|[^\s$])+)", re.ASCII)

Values = Mapping[str, Any]
Edit = tuple[str, str, str]
"""A place and its corrected line, or else a sentence that says what to do."""


class Corrections:
    """The lines of scripts with all corrections so far: one that several findings are about is written once for all."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._before: dict[str, str] = {}
        self._edits: dict[tuple[str, Finding], list[Edit]] = {}

    def of(self, check: str, finding: Finding, places: Mapping[str, str], names: Iterator[str]) -> Finding:
        """The finding with what to write."""
        edits = self._edits.get((check, finding))
        if edits is None:
            current = {place: self._lines.get(place, text) for place, text in places.items()}
            edits = self._edits[check, finding] = corrected(check, finding.values, current, names)
            for place, new, _ in edits:
                if place:
                    self._before.setdefault(place, places[place])
                    self._lines[place] = new
        return finding.with_values(corrected=edits) if edits else finding

    def written(self, outcome: Outcome) -> Outcome:
        """With sentences in place of the edits, once all findings are corrected."""

        def with_sentences(finding: Finding) -> Finding:
            edits = finding.values.get("corrected")
            if not edits:
                return finding
            texts = (_written(at, self._lines[at], self._before[at]) if at else text for at, _, text in edits)
            return finding.with_values(corrected=list(dict.fromkeys(texts)))

        return msgspec.structs.replace(outcome, findings=tuple(map(with_sentences, outcome.findings)))


def corrected(check: str, values: Values, places: Mapping[str, str], names: Iterator[str]) -> list[Edit]:
    """What to write; empty where the finding does not say it.

    ``names``: the places of the finding, as `doctor.session.several_launches` names them, the likeliest first.
    """
    if check in _EXPORTING:
        return list(_exports(_EXPORTING[check](values), places))
    correct = _BY_CHECK.get(check)
    for place in names if correct else ():
        text = places.get(place, "")
        if check == "master-address-local" and SLURM not in places:
            return [("", "", sentence) for sentence in _at_first_host(place, text, values)]
        new = correct(text, {**values, SLURM: SLURM in places}) if text and correct else None
        if new is not None and new != text and len(new) < MAX_LINE and "`" not in new:
            return [(place, new, "")]
    return []


def _written(place: str, new: str, text: str) -> str:
    file, _, line = place.rpartition(":")
    if not file:
        return filled("The corrected launch line: `{0}`", hide_secrets(new))
    if not new:
        deleted = "In the folder of {1}: `sed -i.bak '{0}s/.*//' {1}` takes line {0} away: {2}"
        return filled(deleted, line, shlex.quote(file), hide_secrets(text.strip()))
    return filled("Line {0} of {1} must read: `{2}`", line, file, hide_secrets(new.strip()))


def _at_first_host(place: str, text: str, values: Values) -> list[str]:
    """The command that writes the address of the host with rank 0, where it is typed, into a job script."""
    file, _, line = place.rpartition(":")
    option = re.match(r"`(--\w+[-_]addr) ", str(values.get("option", "")))
    address = re.search(_OWN_ADDRESS, text)
    launcher = re.search(r"\b(?:torchrun|msrun)\b", text)
    if not re.fullmatch(r"[\w./+-]+", file, re.ASCII) or not (address or (option and launcher)):
        return []
    old = address[0] if address else launcher[0] if launcher else ""
    new = _FIRST_ADDRESS if address or not option else f"{old} {option[1]} {_FIRST_ADDRESS}"
    command = f'sed -i.bak "{line}s/\\b{old}\\b/{new}/" {file}'
    return [filled("On the host with rank 0, in the folder of {0}: `{1}`; then copy {0} to the others.", file, command)]


def _exports(command: str, places: Mapping[str, str]) -> Iterator[Edit]:
    """Each variable at the line that sets it, or before the launch."""
    added, lines = [], dict(places)
    for name, value in _ASSIGNMENT.findall(command):
        place = places.get(name, "")
        text = lines.get(place, "")
        current = re.search(rf"\b{name}=(?:\"[^\"]*\"|'[^']*'|[^\s;]*)", text)
        new = f"{text[: current.start()]}{name}={value}{text[current.end() :]}" if current else text
        if place and new != text and "`" not in new and len(new) < MAX_LINE:
            lines[place] = new
            yield place, new, ""
        else:
            added.append(f"{name}={value}")
    file, _, line = places.get("", "").rpartition(":")
    if added and file:
        yield "", "", filled("Before line {0} of {1} add: `export {2}`", line, file, " ".join(added))


def _exported_in_remedy(values: Values) -> str:
    match = _EXPORTED.search(str(values.get("remedy", "")))
    return match[1] if match else ""


_EXPORTING: Mapping[str, Callable[[Values], str]] = {
    "launch-timeouts-disordered": _exported_in_remedy,
    "rank-table-path-relative": lambda values: (
        f"{values['variable']}=$(realpath {values['path']})"
        if re.fullmatch(r"[\w./-]+", str(values.get("path", "")), re.ASCII)
        else ""
    ),
}


def _name(option: str) -> str:
    """The pattern of an option or a variable, with dashes or underscores."""
    return r"(?<![\w-])" + re.sub(r"(?<=\w)[-_](?=\w)", "[-_]", re.escape(option).replace(r"\-", "-")) + r"(?![\w-])"


def _renamed(text: str, values: Values) -> str | None:
    name, expected = str(values.get("variable") or values.get("key", "")), str(values.get("expected", ""))
    return re.sub(_name(name), expected, text) if name and re.fullmatch(r"[\w.-]+", expected, re.ASCII) else None


def _with_value(text: str, name: str, observed: str, new: str) -> str:
    """The value of an option or a variable replaced; unchanged where the line does not hold it."""
    written = rf"({_name(name)}(?:=|[ \t]+)[\"']?){re.escape(observed)}(?![\w.])"
    replaced = re.sub(written, lambda match: match[1] + new, text, count=1)
    if replaced != text:
        return replaced
    return re.sub(rf"(\b[A-Z_]\w*=[\"']?){re.escape(observed)}(?![\w.])", lambda match: match[1] + new, text, count=1)


def _number_of(name: str, text: str) -> str:
    """The number that a word, a switch or a duration stands for; else empty."""
    if text in _NUMERALS:
        return str(_NUMERALS.index(text))
    seconds = parse_span(text, bare=False)
    if seconds and "time" in name:
        return f"{seconds:.0f}"
    return "1" if text in _SWITCHES else ""


def _right_value(name: str, observed: str, expected: str) -> str:
    """The value that was meant, as far as only one can be; else empty."""
    if name in _PORTS and "whole number" in expected:
        return _PORTS[name]
    if expected.startswith("HOST:PORT") and ":" in observed:
        return f"{observed.rpartition(':')[0]}:{RENDEZVOUS_PORT}"
    if expected.startswith(("a whole number", "a number of hosts")) and (number := _number_of(name, observed.lower())):
        return number
    scheme = re.fullmatch(r"\w{2,8}://([\w.-]+)/?", observed, re.ASCII)
    if scheme and expected == "a host name or an IP address":
        return scheme[1]
    limits = re.search(r"whole number from (\d+) to (\d+)", expected)
    if limits and observed.isdecimal():
        return limits[1] if int(observed) < int(limits[1]) else limits[2]
    if expected.startswith("device numbers") and re.fullmatch(r"\d+(?:[ ,]+\d+)*", observed):
        numbers = sorted(map(int, re.findall(r"\d+", observed)))
        return ",".join(map(str, numbers)) if len(set(numbers)) == len(numbers) else ""
    choices = [choice.strip() for choice in expected.removeprefix("one of ").split(",")]
    by_case = {choice.lower(): choice for choice in choices if re.fullmatch(r"[\w-]+", choice, re.ASCII)}
    word = observed.lower()
    return by_case.get(word, by_case.get(meant_key(word, by_case), "")) if len(by_case) == len(choices) > 1 else ""


def _of_option(text: str, values: Values) -> str | None:
    option, observed, expected = (str(values.get(name, "")) for name in ("option", "observed", "expected"))
    case = values.get("case")
    if case == "A wrong name" or (case == "A wrong value" and expected.startswith("--")):
        return re.sub(_name(option), expected, text, count=1)
    if case == "An interpreter":
        return re.sub(rf"(?<=\s){re.escape(observed)}\s+(?=\S+\.py\b)", "", text, count=1)
    if case in ("A missing size", "A missing flag"):
        given, value = (f"{option} {expected}", f"[ =]{re.escape(expected)}") if "size" in case else (option, "")
        before = re.sub(rf"\s{re.escape(option)}{value}(?!\S)", "", text, count=1)
        return re.sub(rf"(?<![\w./-]){re.escape(str(values.get('launcher')))}\b", rf"\g<0> {given}", before, count=1)
    if case != "A wrong value":
        return None
    if values.get("launcher") == "bash":
        assigned = text.replace(f"{option} {observed}", expected, 1)
        return re.sub(r"^(\s*)(?=[A-Z_]\w*=\S+\s*$)", r"\1export ", assigned, flags=re.ASCII)
    return _with_right_value(text, option, observed, expected)


def _with_right_value(text: str, option: str, observed: str, expected: str) -> str | None:
    if expected.startswith("none beside ") or (option, observed) == ("--num-gpus", "all"):
        for needless in re.findall(r"--[\w-]+", expected) or [option]:
            text = re.sub(rf"{_name(needless)}[ =]+\S+\s*", "", text, count=1)
        return text
    if expected.startswith("no value: it is a flag"):
        return re.sub(rf"({_name(option)})[ =]+{re.escape(observed)}(?!\S)", r"\1", text, count=1)
    new = _right_value(option, observed, expected)
    return _with_value(text, option, observed, new) if new else None


def _of_setting(text: str, values: Values) -> str | None:
    variable, observed, expected = (str(values.get(name, "")) for name in ("variable", "observed", "expected"))
    if new := _right_value(variable, observed, expected):
        return _with_value(text, variable, observed, new)
    return _unset(text, values)


def _of_number(text: str, values: Values) -> str | None:
    """A launcher that is started on each host, with a number of its own there."""
    outer, number = str(values.get("outer", "")), _TASK_NUMBERS.get(str(values.get("outer", "")))
    if outer == "ssh" and "'" not in text and _NODE_RANK.search(text):
        counted = _NODE_RANK.sub(" --node_rank $node_rank", text, count=1)
        return counted.replace("ssh ", "node_rank=$((${node_rank:--1} + 1)); ssh ", 1)
    task = re.fullmatch(r"(\s*srun(?: -\S+)*) ([^-'\"\\#|;&]*)", text)
    if task and values.get("variable") == "RANK" and not _OWN_VARIABLE.search(task[2]):
        return f"{task[1]} bash -c 'export RANK=$SLURM_PROCID; exec {task[2].rstrip()}'"
    if outer == "pdsh" and "pdsh" in text and _NODE_RANK.search(text):
        return _NODE_RANK.sub(" --node_rank %n", text, count=1)
    if number and re.match(rf"\s*{_INNER}\b", text):  # a line of the script that runs in each task
        return _NODE_RANK.sub(f" --node_rank {number}", text, count=1) if "accelerate" not in text else None
    quoted = re.fullmatch(rf"(.*\bbash -c )\"({_INNER}\b[^\"'\\]*)\"(\s*)", text)
    unquoted = re.fullmatch(rf"(\s*{re.escape(outer)}\b[^\"'\\#]*?\s)({_INNER}\b[^\"'\\#]*)", text)
    match = quoted or unquoted
    if not number or not match:
        return None
    inner = _NODE_RANK.sub("", match[2]).rstrip()
    if _OWN_VARIABLE.search(inner):
        return None
    option = "--machine_rank" if inner.startswith("accelerate") else "--node_rank"
    with_number = re.sub(rf"^{_INNER}", lambda start: f"{start[0]} {option} {number}", inner)
    return f"{match[1]}'{with_number}'" if quoted else f"{match[1]}bash -c '{with_number}'"


def _of_sizes(text: str, values: Values) -> str | None:
    first, second = str(values.get("first", "")), str(values.get("second", ""))
    number, observed = values.get("number"), values.get("observed")
    if isinstance(number, int) and str(values.get("expected", "")).startswith(f"{first} to be a multiple"):
        return _with_value(text, first, str(observed), str(number))
    if not second or any(mark in text for mark in '"\\#;&|'):
        return None
    if values.get("expected") == "one start for all hosts":
        within = re.fullmatch(rf"\s*{re.escape(first)}\b.*?\s'?({re.escape(second)}\b[^']*)'?\s*", text)
        return within[1] if within else None
    if not first:
        alone = re.fullmatch(rf"\s*((?:\w{{1,60}}=\S* )*)({re.escape(second)}\b.*)", text, re.ASCII)
        if not alone or not values.get(SLURM):
            return None
        return f"{alone[1]}srun --nodes={observed} --ntasks-per-node=1 {alone[2].strip()}"
    if not isinstance(number, int) or not isinstance(observed, int) or values.get("expected") != "one on each host":
        return None
    return _one_on_each_host(text, first, number, observed)


def _one_on_each_host(text: str, outer: str, starts: int, hosts: int) -> str | None:
    """A launcher that is started as often as it has hosts: the outer one's number, else its own."""
    is_multiple = starts > hosts > 0 and starts % hosts == 0
    if outer == "mpirun" and is_multiple:
        return re.sub(rf"(-n|-np) {starts}\b", rf"\1 {hosts} --map-by ppr:1:node", text, count=1)
    if outer == "srun" and is_multiple and not _STEP_SIZE.search(text):
        return re.sub(r"\bsrun\b", rf"srun --nodes={hosts} --ntasks={hosts} --ntasks-per-node=1", text, count=1)
    if outer == "srun" and is_multiple and re.search(rf"\s(?:-N ?|--nodes[= ]){hosts}(?!\S)", text):
        each = re.sub(rf"(\s--ntasks-per-node[= ]){starts // hosts}(?!\S)", r"\g<1>1", text, count=1)
        return re.sub(rf"(\s(?:-n ?|--ntasks[= ])){starts}(?!\S)", rf"\g<1>{hosts}", each, count=1)
    return re.sub(rf"(--nnodes[= ]){hosts}\b", r"\g<1>$SLURM_NNODES", text, count=1) if outer == "srun" else None


def _of_address(text: str, values: Values) -> str | None:
    """Slurm's first host in place of the own address; where a shell on each host would compute it, it is the same."""
    if not values.get(SLURM) or "'" in text:
        return None
    return re.sub(_OWN_ADDRESS, lambda _: FIRST_OF_SLURM, text, count=1)


def _of_computed(text: str, values: Values) -> str | None:
    """What each host computes for itself, from what Slurm gives to all of them."""
    if not values.get(SLURM):
        return None
    named = re.sub(r"\$\(hostname(?: -[A-Za-z])?\)", lambda _: FIRST_OF_SLURM.replace('"', ""), text)
    return re.sub(r"\bRANDOM\b", "SLURM_JOB_ID", named)


def replaced_option(values: Values) -> tuple[str, str, str]:
    """The option of a script that a finding of its training changes, its new and its old number; empty for none."""
    match = _REPLACED.search(str(values.get("edit", "")))
    return (match[1], match[2], match[3]) if match else ("", "", "")


def _of_size(text: str, values: Values) -> str | None:
    option, new, old = replaced_option(values)
    return _with_value(text, option, old, new) if option else None


def _unset(text: str, values: Values) -> str | None:
    assignment = rf"\s*(?:export\s+)?{re.escape(str(values.get('variable')))}=(?:\"[^\"]*\"|\S*)\s*"
    return "" if re.fullmatch(assignment, text) else None


_BY_CHECK: Mapping[str, Callable[[str, Values], str | None]] = {
    "launch-variable-misspelt": _renamed,
    "launch-settings-contradict": _renamed,
    "launch-option-refused": _of_option,
    "launch-settings-invalid": _of_setting,
    "launch-limit-low": lambda text, values: text.replace(
        str(values["command"]), f"ulimit -{values['letter']} {values['advised']}", 1
    ),
    "rank-numbers-wrong": _of_number,
    "launch-sizes-contradict": _of_sizes,
    "launch-differs": _of_computed,
    "master-address-local": _of_address,
    "visible-devices-wrong": _unset,
    "launch-model-not-divisible": _of_size,
    "launch-ranks-not-divisible": _of_size,
    "launch-batch-not-divisible": _of_size,
}
