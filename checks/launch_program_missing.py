import posixpath
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.job_paths import OF_DATA, JobProgram
from doctor.job import LaunchConfig, limit_items

_LACKING = {
    "missing": "not there",
    "folder": "a folder without __main__.py",
    "not executable": "not executable",
    "without interpreter": "a script whose interpreter does not exist",
    "text": "text whose first line names no interpreter",
    "broken": "no valid Python",
    "without code": "a file without code",
    "shadowed": "assumed to be a module of Python or PyTorch",
    "blocked": "no folder that can be made or written to",
    "absent": "not there",
    "refused": "not readable for this user",
    "special": "neither a file nor a folder",
    "empty": "an empty file",
    "damaged": "a checkpoint without its end",
    "closed": "no place that can be made or written to",
}
"""By the state, what is said of it."""
_SURE = ("blocked", "shadowed", "broken")
_CASES = {
    "not executable": "Mode",
    "without interpreter": "Interpreter",
    "text": "Header",
    "broken": "Text",
    "shadowed": "Name",
    "closed": "Results",
}
_MODULES = ("-m ", "import ")
"""What stands before the name of a module, by how it is loaded."""


@check(severity=ERROR, area="ranks")
def launch_program_missing(programs: PerHost[JobProgram], launch: LaunchConfig) -> Iterator[Finding]:
    """The program of the launch line, what it imports, and the files, folders and GPUs of the line are on every host.

    ## Why it matters
    The ranks of a host without the program end at once: "can't open file", "can't find '__main__' module" of a folder,
    "No module named". A program without code ends at once, too. The ranks of the other hosts wait for them in
    `init_process_group`, until its timeout. torchrun that cannot make its folder for logs starts none.

    ## What to do
    - File: on {host}, `findmnt -T {path}` names the file system that should hold it. Where that is a shared one, mount
      it there as on {holder}. Else copy it: `rsync -a --mkpath {holder}:{path} {path}`.
    - Results: `ls -ld {path}` and `findmnt -T {path}` show on {host} what is there. Where a file or a dangling link
      stands in the place of the folder: `mv {path} {path}.old`. On a read-only file system: `mount -o remount,rw
      "$(findmnt -n -o TARGET -T {path})"`. Else name another folder in the launch line.
    - No GPU: write the number of ranks on each host in place of gpu, such as `torchrun --nproc-per-node 1`.
    - Module: on {holder}, `cd {folder} && python3 -c "import importlib.util as u;
      print(u.find_spec('{module}').origin)"` prints where it is. Mount that folder on {host}, or copy it: `rsync -a
      --mkpath {holder}:<folder>/ <folder>/`; of a package, `python3 -m pip install <package>`.
    - No module: install the package that has it, `python3 -m pip install <package>`, or name the folder that holds it:
      `export PYTHONPATH=<folder>`.
    - Definition: on {host}, `cd {folder} && python3 -c "import {module}; print({module}.__file__)"` prints the file
      that Python takes for this module and that lacks the name. Copy the right one there, or correct the import. A
      folder {module} hides a file {module}.py: `mv {module} {module}.unused`.
    - Command: a shell of {host} does not find {path}. `command -v {path}` on {holder} prints where it is: install it on
      {host}, too, and add its folder to the PATH at the top of ~/.bashrc: `export PATH=<folder>:$PATH`.
    - Mode: on {host}, `chmod +x {path}`.
    - Interpreter: on {host}, `head -n 1 "$(command -v {path})" | cat -A` shows it. With `^M` at its end: `dos2unix
      {path}`.
    - Header: `sed -i '1i #!/usr/bin/env python3' {path}` of a program in Python, `#!/bin/bash` of one of the shell: a
      shell reads a file without it, torchrun, mpirun and srun do not ("Exec format error").
    - Text: `python3 -c "import sys, tokenize as t; compile(t.open(sys.argv[1]).read(), sys.argv[1], 'exec')" {path}`
      shows the line, or a byte that is no UTF-8. Correct it, or start the program with the Python it is for.
    - Name: rename {path}, and correct what imports it: Python takes it for the module of that name, which PyTorch
      needs.
    - Path: correct the path in the launch line, or in the variable that has it; or run the command in the folder that
      holds it.

    ## Source
    The program of the launch line after `--`: an absolute path; or a relative one where all ranks start in the folder
    of this command, or of srun's `--chdir` or mpirun's `--wdir`: a launch on this host alone, or by srun, mpirun or
    deepspeed.
    The same for configurations in JSON, YAML and TOML; one of a relative path that no host has is a warning, as a
    program may look for it in a folder of its own. Of a job script absolute paths are looked for, and those behind a
    `cd` to an absolute path, or from this folder where the script runs next on this host: where commands before the
    line may make the file, one that no host has is a warning. What starts in a container or is found on the PATH is not
    looked for.
    What torchrun, accelerate or msrun starts by a shell on each host, outside of a scheduler, is looked for in the
    folder of this command, as is the launcher in the PATH of a login; what fewer than half of the hosts have is not
    judged, and what half of them have is unknown.
    What an option such as --data, --resume or --tokenizer names by a path is looked for, and whether what one such as
    --output-dir names can be written: an error where fewer than half of the hosts lack it, as a program may need it on
    its first rank alone; what no host has is a warning, as a program may make or ignore it. Where the program loads the
    file on each rank (`torch.load(args.resume)`, with no test but that it is given), it is an error on any host. A
    checkpoint of torch or safetensors that was cut off counts as one that cannot be read. A name that the program
    imports first from a module beside it is looked for in that module's text.
    A module is looked for where torchrun or python starts it in this folder; on other hosts where srun starts all
    ranks, or mpirun a Python whose path the line names; and what the program imports first, by the interpreter that
    this shell finds for the line, which imports none of it; where PYTHONPATH is set, which a login may lack, under srun
    alone.
    So is what torchrun imports, also for `--rdzv-backend etcd`. A file beside the program, or in PYTHONPATH, that has
    the name of one of Python's own modules is an error where an empty one ends `import torch.distributed` of PyTorch
    2.13 (each was tried), unless it has half of that module's names.
    Behind other statements, which may change where Python looks, a module that no host has is not judged. So are the
    folders of mpirun's `--wdir` and of `--log-dir`; the file of NCCL_GRAPH_FILE, without which NCCL 2.28 ends the ranks
    (measured on an H200); and of `--nproc-per-node gpu` a device file of any GPU.
    """
    if lacking_gpus := [host for host, program in programs.items() if program.has_gpus is False]:
        yield Finding(
            "{path} counts GPUs, and there is {observed}",
            hosts=lacking_gpus,
            path="--nproc-per-node gpu",
            observed="no device file of one",
            expected="a GPU",
            case="No GPU",
        )
    undecided: list[str] = []
    for path in sorted({path for program in programs.values() for path in program.states}):
        states = {host: program.states[path] for host, program in programs.items() if path in program.states}
        holder = next((host for host, state in states.items() if state == "there"), None)
        elsewhere = [host for host, state in states.items() if state == "elsewhere"]
        if elsewhere and 2 * list(states.values()).count("there") == len(states):
            undecided.append(filled("{0} is on {1}, and not on {2}", path, holder, limit_items(elsewhere)))
            continue
        if 2 * list(states.values()).count("there") >= len(states):  # what most have where Python looks, the rest lack
            states = {host: "missing" if state == "elsewhere" else state for host, state in states.items()}
        is_program = any(program.path == path for program in programs.values())
        for lacking, observed in _LACKING.items():
            missing = [host for host, state in states.items() if state == lacking]
            if not missing or (lacking == "text" and not launch.inner_launcher):
                continue
            is_everywhere, is_shared = len(missing) == len(states), lacking in OF_DATA
            if is_shared and all(programs[host].each_rank_loads(path, launch.launch_line) for host in missing):
                is_shared = False
            if is_shared and 2 * len(missing) > len(states) and not is_everywhere:
                continue
            module = path.split(" ")[-1] if path.startswith(_MODULES) else None
            case = _case(path, lacking, holder, module)
            texts = {"Definition": "the module {searched} has no {name}, which the program imports"}
            yield Finding(
                texts.get(case, "{path}: Python does not find it") if module else "{path} is {observed}",
                hosts=missing,
                path=path,
                observed=observed,
                expected=_expected(path, lacking, is_program),
                holder=holder,
                module=module.partition(".")[0] if module and path.startswith("import ") else module,
                searched=module.rpartition(".")[0] if module else None,
                name=module.rpartition(".")[2] if module else None,
                folder=posixpath.dirname(programs[missing[0]].path) or ".",
                case=case,
            ).as_warning(
                (2 * len(missing) == len(states) or (is_everywhere and lacking != "closed"))
                if is_shared
                else (is_everywhere and lacking == "without code")
                or not (is_program or holder or module or path in launch.launch_line or lacking in (*_SURE, *OF_DATA))
            )
    if undecided:
        raise Unreadable(filled("{0}: their shells may start the line in another folder", undecided[0]))


def _case(path: str, lacking: str, holder: str | None, module: str | None) -> str:
    if "/" not in path and lacking == "missing" and not module and holder:
        return "Command"
    if module and "." in module and path.startswith("import "):
        return "Definition"
    if module:
        return "Module" if holder else "No module"
    return _CASES.get(lacking, "File" if holder else "Path")


def _expected(path: str, lacking: str, is_program: bool) -> str:
    if lacking == "blocked":
        return "a folder for logs, as --log-dir says"
    if lacking in OF_DATA:
        return "a folder for its results" if lacking == "closed" else "what the program reads"
    if path.startswith("import "):
        return "a module that the program or its launcher imports"
    if is_program or path.startswith("-m "):
        return "the program of the launch line"
    return "a file or folder of the launch line"
