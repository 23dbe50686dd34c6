"""The variables by which a job sets how its ranks communicate. Part of both programs. Python 3.6."""

import re
from typing import Dict, Mapping

JOB_VARIABLE = re.compile(r"(NCCL|RCCL|GLOO|HCCL|TP|TORCH_(NCCL|HCCL|DIST|DISTRIBUTED|GLOO))_[A-Z0-9_]+$")
MOST_VARIABLES, MAX_VALUE = 64, 256


def job_variables(environ: Mapping[str, str]) -> Dict[str, str]:
    """Those of an environment, each bounded to 256 characters, at most 64.

    >>> job_variables({"NCCL_ALGO": "Ring", "GLOO_SOCKET_IFNAME": "", "HOME": "/root"})
    {'NCCL_ALGO': 'Ring'}
    """
    names = sorted(name for name in environ if JOB_VARIABLE.match(name) and environ[name])
    return {name: environ[name][:MAX_VALUE] for name in names[:MOST_VARIABLES]}
