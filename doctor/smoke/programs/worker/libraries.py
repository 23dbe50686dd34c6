"""torch, torch.distributed and NumPy: imported once by `load_libraries`, which measures how long that takes.

All parts of the worker share one namespace on the host, so they use the names that this part binds. Where the parts
are imported as ordinary modules, the three names stay None.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import sys
import time
import warnings
from typing import TYPE_CHECKING

from doctor.remote.runtime.host_texts import filled
from doctor.remote.runtime.job_variables import job_variables
from doctor.smoke.programs.worker.orders import EventWriter, Orders

if TYPE_CHECKING:
    import numpy as numpy
    import torch as torch

    dist = torch.distributed
else:
    torch = dist = numpy = None

PRELOADED_MODULES: list[str] = []
"""Modules that stages need besides torch. Imported before the fork, so that the ranks share them."""


class MindSporeOnly(Exception):
    """The job's interpreter has MindSpore, and no torch: the job may be in order, and cannot be tried with torch."""


def mindspore_version() -> str:
    """What is installed, and where: for a message."""
    from importlib import metadata

    try:
        version = metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        version = ""
    return filled("{0} has MindSpore{1}{2} and no torch", sys.executable, " " * bool(version), version)


def import_torch(early_error: BaseException | None) -> None:
    """Binds torch and torch.distributed. ``early_error``: how an earlier import of them ended."""
    global torch, dist
    try:
        if early_error:
            raise early_error
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch" and importlib.util.find_spec("mindspore"):
            raise MindSporeOnly(mindspore_version()) from None
        raise
    import torch.distributed as dist


def load_libraries(orders: Orders, events: EventWriter) -> None:
    """Imports torch, what the backend needs and `PRELOADED_MODULES`; then emits ``imported`` with the versions and the
    seconds that all of it took.

    Ends the process with status 3 where this torch lacks the backend. Raises: the exceptions of the imports.
    """
    global numpy
    warnings.filterwarnings("ignore")
    early_seconds, early_error = globals().get("early_import", (0.0, None))  # of the boot line
    started, backend = time.monotonic() - early_seconds, orders["plan"]["backend"]
    import_torch(early_error)
    try:
        import numpy
        import numpy.random  # otherwise each rank imports it at its first use
    except ImportError:
        numpy = None  # type: ignore[assignment]
    if backend == "hccl":
        importlib.import_module("torch_npu")  # it registers itself with torch
    available = backend == "hccl" or dist.is_backend_available(backend)
    for name in PRELOADED_MODULES * available:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    events.emit(
        "imported",
        seconds=round(time.monotonic() - started, 3),
        torch=torch.__version__,
        numpy=numpy.__version__ if numpy else None,
        python=".".join(map(str, sys.version_info[:3])),
        variables=job_variables(os.environ),
        managed=sys.prefix == sys.base_prefix and os.path.exists(f"{os.path.dirname(os.__file__)}/EXTERNALLY-MANAGED"),
        text="" if available else filled("this torch was built without {0}", backend),
    )
    if not available:
        os._exit(3)
    # The boot line disabled the collector: scanning what torch has just created costs a tenth of the import time.
    gc.freeze()
    gc.enable()
