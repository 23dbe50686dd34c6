from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled, joined
from doctor.facts.python_env import PythonEnv, TorchImport, import_cause
from doctor.job import limit_items

CASES = {
    "Module": "ModuleNotFoundError",
    "Accelerators": "Two accelerators",
    "Signal": "by signal ",
}
"""What the error says, by the label of what to do about it."""


@check(severity=ERROR, area="versions")
def torch_import_fails(torch: TorchImport, python: PythonEnv | None) -> Iterator[Finding]:
    """torch can be imported by the job's interpreter.

    ## Why it matters
    Every rank on this host fails at its start, and the ranks of the other hosts wait for it until their timeout.

    ## What to do
    {remedy}

    Show the whole message on {host}: `{python} -X faulthandler -c "import torch"`.

    - Module: `{python} -m pip install <module>` (torch_npu needs pyyaml without declaring it).
    - Accelerators: torch is a CUDA build; `{python} -m pip install torch --index-url
      https://download.pytorch.org/whl/cpu` installs the CPU build.
    - Signal: a library of this host is damaged or of another version. `{python} -m pip freeze` here and on a host where
      the import succeeds shows it; `{python} -m pip install --force-reinstall --no-deps <package>==<version>` installs
      that of the other host. Without a difference, install torch itself so again.

    ## Source
    One import, made with the job's interpreter and those of its variables that Python, torch, OpenMP and MKL read at a
    start; it also starts OpenMP's threads. What was raised first is shown. What is due to CANN or the driver is
    left to torch-npu-cannot-load. Python looks first into the folder of the script that it runs, or with `-m` into the
    working folder (`sys.path[0]`): the import does so, too, where a launch line names the script and the host has the
    folder. That is wrong of an interpreter that is started with `-P` or `-I`.
    """
    if torch.broken_by:
        names = limit_items(list(torch.broken_by), 4)
        yield Finding(
            "import torch fails with the job's variables ({names}), and succeeds without: {observed}",
            names=names,
            observed=torch.error_with_set_env,
            expected="import torch succeeds",
            python=python.typed if python else None,
            remedy=filled("Correct or unset {0} in the job's environment.", joined(" or ", names)),
        )
    elif import_cause(torch.error_with_set_env) == "other":
        from doctor.diagnose.lookup import fix_of  # all that reads logs: a host whose import succeeds needs none of it

        files = ", ".join(torch.hides)
        text = "Rename {0}: beside the job's script or in PYTHONPATH, it is loaded in place of the module."
        yield Finding(
            "import torch fails: {observed}",
            observed=torch.error_with_set_env,
            expected="import torch succeeds",
            python=python.typed if python else None,
            case=[label for label, phrase in CASES.items() if phrase in torch.error_with_set_env],
            remedy=filled(text, files) if files else fix_of(torch.error_with_set_env),
        )
