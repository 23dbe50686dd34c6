"""Modules beside a program in whose names Python finds no others any more: the first part of a rehearsal's stub.

It stands before all other imports, which are those of Python then: nothing of the program's folder is run.
"""

import os
import sys

LOADED, BESIDE = set(sys.modules), None
if os.path.abspath(sys.path[0] or ".") == os.path.dirname(os.path.abspath(__file__)):  # not with python -P
    BESIDE = sys.path.pop(0) or "."
LIBRARIES = (
    "torch", "torch_npu", "torchvision", "numpy", "mindspore", "jax", "mpi4py", "transformers", "accelerate",
    "deepspeed", "megatron", "lightning", "triton", "vllm", "ray",
)  # fmt: skip
MOST_NAMES = 20000


def module_names(folder):
    """The modules and packages in a folder: a folder without __init__.py takes no other's place."""
    try:
        names = sorted(os.listdir(folder))[:MOST_NAMES]
    except OSError:
        return set()
    files = {name.split(".")[0] for name in names if name.endswith((".py", ".so"))}
    return files | {name for name in names if os.path.isfile(os.path.join(folder, name, "__init__.py"))}


def hidden_modules():
    """Names of modules of Python and of frameworks, as ``["queue", "torch"]``, that only the program's folder gives.

    What an interpreter loads before it looks beside the program cannot be hidden, and nothing needs Python's own tests.
    Source: docs.python.org, "The initialization of the sys.path module search path".
    """
    if BESIDE is None:
        return []
    library = os.path.dirname(os.__file__)
    of_python = module_names(library) | module_names(library + "/lib-dynload")
    installed = set().union(*(module_names(path or ".") for path in sys.path)) & set(LIBRARIES)
    return sorted((of_python | installed) & module_names(BESIDE) - LOADED - {"test"})[:64]
