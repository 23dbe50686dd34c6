"""Commands that run another command: ``env``, ``timeout``, ``numactl``, ``docker run``. Pure.

Sources: coreutils and util-linux manuals; numactl(8); docker-run(1) and podman-run(1); apptainer-exec(1); su(1);
kubectl-exec(1); ssh(1); pdsh(1); NERSC, "Shifter" (https://docs.nersc.gov/development/containers/shifter/); Ray,
"ray job submit" (https://docs.ray.io/en/latest/cluster/running-applications/job-submission/cli.html); coverage.py,
"run".
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_size import SETS_SIZES, VARIABLES
from doctor.job.launch_line.call_parts import Argv, host_list, of_this_size
from doctor.job.launch_line.commands import WrapperRow, launcher_rows, option_table, wrapper_rows
from doctor.job.launch_line.model import OWN_DEVICES, OWN_MEMORY, OWN_NETWORK, LaunchCall, LaunchLine
from doctor.job.launch_line.options import Options, split_options
from doctor.job.shell.word import Word, known_text
from doctor.job.variable_names import documented_variables


class Unwrapped(NamedTuple):
    """What a wrapper runs, and what it does to the environment."""

    label: str
    argv: Argv
    environ: dict[str, str]
    unresolved: dict[str, str]
    removed: frozenset[str] = frozenset()
    inherits_environment: bool = True
    passed: tuple[str, ...] = ()
    container: str = ""
    is_shell_text: bool = False
    """The words are the text of a shell, joined with spaces."""
    hosts: tuple[str, ...] = ()
    """Other hosts on which it runs."""
    open_host: str = ""
    """The source text of the host, where it is not known."""
    problems: tuple[OptionProblem, ...] = ()
    options: dict[str, tuple[str, ...]] = {}
    """Of what runs it on other hosts."""
    by_name: str = ""
    """It leaves out the environment without this option, behind which stand the names of what it keeps."""


def unwrap(name: str, argv: Argv, outside: Container[str] = ()) -> Unwrapped | None:
    """What a command runs; None where it is no wrapper.

    ``argv``: the words after its name; ``outside``: the names of the variables that it has.
    """
    if name == "env":
        return _unwrap_env(argv)
    first = argv[0].text if argv else ""
    wrapper = wrapper_rows().get((name, first)) or wrapper_rows().get((name, ""))
    if wrapper is None:
        return None
    if first and first in wrapper.subcommands:
        name, argv = f"{name} {first}", argv[1:]
    if name == "nice" and re.fullmatch(r"-[0-9]{1,2}", first):
        argv = argv[1:]
    options = split_options(name, argv, wrapper)
    if wrapper.shell_text:
        return _as_other_user(name, options, wrapper)
    rest = options.rest
    environ, unresolved, passed = variables_of(options, wrapper.variables)
    kept = [word.text for word in options.texts("preserve-env")]
    passed += tuple(filter(None, ",".join(kept).split(",")))
    keeps_all = len(kept) < len(options.by_name.get("preserve-env", ()))
    if wrapper.is_container:
        environ |= _devices(options)
    unresolved_options = {key: text for key, text in options.unresolved.items() if key.startswith("options")}
    positional = rest[0].text if wrapper.positionals and rest else ""
    open_host = rest[0].unresolved if wrapper.is_remote and positional else ""
    if wrapper.is_remote and unresolved_options and _is_command(positional):  # `ssh $HOST "cd /job && torchrun ..."`
        positional, open_host, unresolved_options = "", unresolved_options.get("options", ""), {}
    else:
        rest = rest[wrapper.positionals :]
    if wrapper.after_dashes:
        rest = rest[next((position for position, word in enumerate(rest) if word.text == "--"), -1) + 1 :]
    if wrapper.is_text and len(rest) == 1:
        rest = (Word("sh"), Word("-c"), *rest)
    if wrapper.runs_python:
        module = options.word("m")
        rest = (Word("python3"), *((Word("-m"), module) if module else ()), *rest)
    values = {option: " ".join(word.text for word in options.texts(option)) for option in options.by_name}
    owned = {option for option in wrapper.word_counts if option != "network" or wrapper.own_network}
    host_words = [*options.rest[:1]] if positional else [word for word in argv if word.may_be_several]
    user, has_user, _ = "".join(map(known_text, host_words[:1])).rpartition("@")
    hosts = (positional.rpartition("@")[2],) if name == "ssh" and positional else host_list(options.text("w"))
    ssh_options = options.as_texts() if wrapper.is_remote else {}
    return Unwrapped(
        label=f"{name} {positional}".strip(),
        argv=tuple(map(_on_each_host, rest)) if name in ("pdsh", "clush") else rest,
        environ=environ,
        unresolved={**unresolved, **unresolved_options},
        inherits_environment=wrapper.inherits_environment and "cleanenv" not in options and "containall" not in options,
        passed=passed,
        container=positional if wrapper.is_container else "",
        is_shell_text=wrapper.is_remote,
        hosts=hosts if wrapper.is_remote else (),
        open_host=open_host,
        options={**ssh_options, "l": (user or "$",)} if wrapper.is_remote and has_user else ssh_options,
        problems=(
            *options.problems,
            *(() if unresolved_options or not positional else own_parts(name, values, positional, owned, outside)),
        ),
        by_name="" if keeps_all else wrapper.by_name,
    )


def _devices(options: Options) -> dict[str, str]:
    """The variables by which an image would ask for the devices that ``docker run`` names: docker-run(1), "--gpus"."""
    gpus = options.text("gpus").strip("\"'").removeprefix("device=")
    gpus = ",".join(map(str, range(int(gpus)))) if re.fullmatch("[1-9]|[1-9][0-9]", gpus, re.ASCII) else gpus
    nodes = [re.fullmatch(r"/dev/davinci([0-9]{1,3})(?::.*)?", word.text, re.ASCII) for word in options.texts("device")]
    npus = ",".join(match[1] for match in nodes if match)
    named = {"NVIDIA_VISIBLE_DEVICES": gpus, "ASCEND_VISIBLE_DEVICES": npus}
    return {name: text for name, text in named.items() if re.fullmatch("[0-9]+(?:,[0-9]+)*", text, re.ASCII)}


_GIVE_DEVICES = {"gpus", "gpu", "device", "devices", "runtime", "privileged", "deploy", "env-file", "hooks-dir"}
_NO_GPU = "as a container has no GPU of its machine by itself"
_NO_GPU_BEHIND = "before the image, as a container has no GPU of its machine by itself"
_NO_GPU_BEFORE_IMAGE = "before the image (--rocm with AMD's GPUs), as a container has no GPU of its machine by itself"
_PARTS: dict[str, tuple[set[str], str, str]] = {
    OWN_MEMORY: ({"shm-size", "shm_size", "ipc"}, "8g", "as NCCL may need more than the 64 MB of its own /dev/shm"),
    OWN_DEVICES: (_GIVE_DEVICES, "all", _NO_GPU),
    "--gpu": (_GIVE_DEVICES, "", _NO_GPU_BEHIND),
    "--nv": ({"nv", "nvccli", "rocm"}, "", _NO_GPU_BEFORE_IMAGE),
}
"""By option: what else gives a container the same, the value, and why."""
_BY_VARIABLE = {
    f"{program}_{option}": option.lower()
    for program in ("APPTAINER", "SINGULARITY")
    for option in ("NV", "NVCCLI", "ROCM")
}
"""Options that a variable gives: Apptainer's user guide, "Environment Variables"."""
_GPUS_OF_JOB = "SLURM_GPUS_ON_NODE"
_OF_GPUS = re.compile(r"nvcr|nvidia|cuda|torch|megatron|nemo\b|vllm|sglang|deepspeed", re.IGNORECASE)
_OF_OTHERS = re.compile(
    r"cpu|rocm|amd|npu|ascend|cann|xpu|hpu|gaudi|neuron|VISIBLE_DEVICES|/dev/shm|^instance:", re.IGNORECASE
)


def own_parts(
    command: str, values: Mapping[str, str], image: str, options: Container[str], environ: Container[str] = ()
) -> Iterator[OptionProblem]:
    """What a container has of its own: docker-run(1), "--network", "--shm-size", "--gpus".

    ``values``: of the options or keys that it is given; ``environ``: variables of the command that starts it.
    """
    values = {**{option: "" for name, option in _BY_VARIABLE.items() if name in environ}, **values}
    has_gpus = bool(_OF_GPUS.search(image)) or "gpus" in values or _GPUS_OF_JOB in environ
    network = next((values[name] for name in ("network", "network_mode", "networks") if name in values), "none")
    if "network" in options and not command.startswith("podman-hpc") and network in ("bridge", "default", "none"):
        reason = "as the ranks of other hosts do not reach the container's own network"
        is_open = command == "podman run" and "network" not in values
        yield OptionProblem(command, OWN_NETWORK, "host", reason, "wanted" if is_open else "needed")
    is_small = re.fullmatch(r"(?:[0-9]{1,5}k|[1-5]?[0-9]m|6[0-4]m)b?", values.get("shm-size", "").lower(), re.ASCII)
    if has_gpus and not _OF_OTHERS.search(" ".join((image, *values.values()))):
        for option, (others, value, reason) in _PARTS.items():
            is_other = option == OWN_DEVICES and "gpu" in options  # podman-hpc's own
            if (
                not is_other
                and option[2:] in options
                and not (values.keys() - ({"shm-size"} if is_small else set())) & others
            ):
                yield OptionProblem(command, option, value, reason, "wanted")


_OF_SERVICE = {OWN_NETWORK: "network_mode", OWN_MEMORY: "shm_size", OWN_DEVICES: "gpus"}


def within_container(line: LaunchLine, image: str, keys: Mapping[str, str], services: Container[str]) -> LaunchLine:
    """The line with what its service of docker compose, of these keys, is not given; services reach each other.

    Of one in the network of its machine `is_whole_here` is set: it may be, with other services.
    """
    line = msgspec.structs.replace(line, container=line.container or image)
    if not keys:
        return line
    call = line.innermost
    address = (call.rdzv_endpoint.partition(":")[0] or call.master_addr) if call else ""
    options = {option.lstrip("-") for option in _OF_SERVICE if option != OWN_NETWORK or address not in services}
    problems = of_this_size(own_parts(keys["kind"], keys, keys.get("image", ""), options), line.launchers)
    named = (problem._replace(option=_OF_SERVICE[problem.option]) for problem in problems)
    in_network = keys.get("network_mode") == "host"
    return msgspec.structs.replace(line, problems=(*line.problems, *named), is_whole_here=in_network)


def _as_other_user(name: str, options: Options, wrapper: WrapperRow) -> Unwrapped | None:
    """What ``su - USER -c TEXT`` runs; None where it names no text. A login leaves nothing of the environment."""
    is_login = options.rest[:1] == (Word("-"),)
    behind = split_options(name, options.rest[is_login + 1 :], wrapper)
    text = options.word(wrapper.shell_text) or behind.word(wrapper.shell_text)
    keeps = not is_login and "login" not in options and "login" not in behind
    kept = tuple(",".join((options.text("whitelist-environment"), behind.text("whitelist-environment"))).split(","))
    if not text:
        return None
    argv, by_name = (Word("sh"), Word("-c"), text), "" if keeps else wrapper.by_name
    return Unwrapped(name, argv, {}, {}, inherits_environment=keeps, passed=kept, by_name=by_name)


_OF_RANKS = frozenset((*VARIABLES, "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"))
"""What `SETS_SIZES` give their ranks, and others read."""


def left_out(unwrapped: Unwrapped, names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Of the variables of its caller those that libraries read and a wrapper does not pass on: itself, and by which
    option it would.
    """
    if not unwrapped.by_name:
        return {}
    kept = {*unwrapped.passed, *unwrapped.environ, *(key[:-1] for key in unwrapped.unresolved)}
    read = (documented_variables() | _OF_RANKS) & {*names}
    return dict.fromkeys(read - kept, (unwrapped.label, unwrapped.by_name))


def not_passed(names: Mapping[str, tuple[str, str]], calls: Sequence[LaunchCall]) -> Iterator[OptionProblem]:
    """What a wrapper is to pass on, of `left_out`; not what a launcher within it sets for its ranks."""
    set_within = _OF_RANKS if any(call.launcher in SETS_SIZES for call in calls) else frozenset[str]()
    for wrapper in dict.fromkeys(names.values()):
        listed = sorted(name for name, by in names.items() if by == wrapper and name not in set_within)
        if listed:
            expected = filled("before the program, as {0} leaves out what is exported before it", wrapper[0])
            yield OptionProblem(wrapper[0], printable(wrapper[1] + ",".join(listed), 200), "", expected, "wanted")


_COMMAND = re.compile(
    r".* .*|(?:cd|export|source|(?:.*/)?(?:(?:python|pypy)[0-9.]*|(?:ba|da|z|k)?sh))|\w+=.*", re.DOTALL
)
"""Texts that are no name of a host."""


def _is_command(text: str) -> bool:
    """Whether a word behind words that are not known begins what another host runs, and is not its name."""
    name = text.rpartition("/")[2]
    is_listed = name in launcher_rows() or (name, "") in wrapper_rows()
    return is_listed or _COMMAND.fullmatch(text) is not None


_HOST_WORD = re.compile(r"(%(?:n|h|u|rank|host)\b)", re.ASCII)
"""What pdsh puts another text in place of on each host: pdsh(1), "-w"; clush(1), "%h"."""


def _on_each_host(word: Word) -> Word:
    """The word with what differs from host to host unresolved."""
    if word.unresolved or not _HOST_WORD.search(word.text):
        return word
    parts = [part for part in _HOST_WORD.split(word.text) if part]
    pieces = tuple(Word(part, part if _HOST_WORD.fullmatch(part) else "") for part in parts)
    return Word(word.text, next(piece.unresolved for piece in pieces if piece.unresolved), pieces=pieces)


def variables_of(
    options: Options, names: tuple[str, ...], others: Sequence[Word] = ()
) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    """What options set, by name: their values, those that are not known, and the names that they pass on.

    ``others``: further words ``NAME=value`` or ``NAME``.
    """
    return _assigned([*options.texts(*names), *options.assignments, *others])


def _assigned(assignments: Sequence[Word]) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    environ: dict[str, str] = {}
    unresolved: dict[str, str] = {}
    passed: list[str] = []
    for word in assignments:
        name, equals, value = word.text.partition("=")
        unresolved.pop(f"{name}=", None)
        if word.unresolved and equals:
            unresolved[f"{name}="] = word.unresolved
        elif equals:
            environ[name] = value
        else:
            passed.append(name)
    return environ, unresolved, tuple(passed)


def assigned_first(argv: Argv) -> tuple[dict[str, str], dict[str, str], Argv]:
    """What ``NAME=value`` before a command sets, the values that are not known, and the command."""
    assigns = (re.match(r"[A-Za-z_][A-Za-z0-9_]*=", word.text, re.ASCII) for word in argv)
    count = next((place for place, match in enumerate(assigns) if not match), len(argv))
    return (*_assigned(argv[:count])[:2], argv[count:])


def _unwrap_env(argv: Argv) -> Unwrapped:
    options = split_options("env", argv, option_table("env"))
    environ, unresolved, _ = variables_of(options, ())
    others, not_known, rest = assigned_first(options.rest)
    environ, unresolved = environ | others, unresolved | not_known
    return Unwrapped(
        label="env",
        argv=rest,
        environ=environ,
        unresolved={**unresolved, **options.unresolved},
        removed=frozenset(word.text for word in options.texts("unset")),
        inherits_environment="ignore-environment" not in options,
    )
