from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.python_env import PythonEnv


@check(severity=WARNING, area="versions")
def numpy_too_new(python: PythonEnv) -> Iterator[Finding]:
    """numpy is version 1 where torch_npu is installed.

    ## Why it matters
    The operator compiler of CANN (tbe) uses names that numpy 2 removed: the first operator that must be compiled fails
    with `module 'numpy' has no attribute`, long after the job has started.

    ## What to do
    `{python} -m pip install "numpy<2"` on {host}.

    ## Source
    Reports of users, not the vendor's word: newer releases of CANN may do with numpy 2.
    """
    if "torch_npu" not in python.packages:
        raise Skip("torch_npu is not installed for the job's interpreter")
    numpy = python.packages.get("numpy", "")
    if numpy.partition(".")[0].isdecimal() and int(numpy.partition(".")[0]) >= 2:
        yield Finding(
            "numpy {observed} with torch_npu; expected {expected}", python=python.typed, observed=numpy, expected="1.x"
        )
