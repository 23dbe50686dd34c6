from collections.abc import Iterator, Mapping
from functools import partial

from doctor import WARNING, Finding, PerHost, check, filled
from doctor.engine.version_matrix import first_two_numbers, version_numbers
from doctor.facts.python_env import PythonEnv
from doctor.job.training import NotDecided, NotGiven, TrainingLaunch, View, apply_rules

FIRST_WITHOUT_PREFIX = (2, 6)
"""The first torch whose ranks read the store of the agent without a prefix for the attempt."""
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
DYNAMIC = ("c10d", "etcd-v2")
"""Backends of rendezvous that can leave the store to the ranks."""


@check(severity=WARNING, area="training")
def launch_restart_shares_store(training: TrainingLaunch, python: PerHost[PythonEnv] | None) -> Iterator[Finding]:
    """Ranks that torchrun starts again meet in a store of their own, not in that of the failed attempt.

    ## Why it matters
    From torch 2.6 on, the ranks of a restart read the store that torchrun keeps from the failed attempt, in which the
    addresses of the failed ranks still stand. They connect to ports that have no listener any more. With the static
    rendezvous, which torchrun uses unless told otherwise, every restart fails (gloo: `connectFullMesh failed ...
    Connection refused`); with c10d it depends on which rank is first. `--max-restarts` then only makes the job longer.

    ## What to do
    At {where}: `--rdzv-backend c10d --rdzv-endpoint <host>:<port>` instead of `--master-addr` and `--master-port`, and
    in the environment of torchrun on every host `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`. Or leave `--max-restarts` out,
    and let the scheduler start the job again.

    ## Source
    PyTorch, torch/distributed/rendezvous.py: the prefix of the attempt, there up to 2.5.1, is missing from 2.6.0 on
    (pull request 135957), and torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py makes one store for all
    attempts, as dynamic_rendezvous.py does unless the variable is 1. With NCCL: issues 135712 and 167288. With gloo and
    torch 2.13: `tests/lint/test_real_restarts.py` runs it.
    """
    yield from apply_rules(training, partial(_restarts, python or {}))


def _restarts(python: Mapping[str, PythonEnv], view: View) -> Iterator[Finding]:
    if view.text("launcher") not in ("torchrun", "accelerate"):
        raise NotGiven("launcher")
    restarts = view.need("restarts")
    if restarts.value == 0:
        return
    backend = view.text("rdzv_backend") or "static"
    if (backend in DYNAMIC and view.text("own_store") == "1") or backend not in (*DYNAMIC, "static"):
        return
    versions = {text: _version(text) for text in sorted({one.packages.get("torch", "") for one in python.values()})}
    affected = [text for text, version in versions.items() if version and version >= FIRST_WITHOUT_PREFIX]
    if not affected and (not versions or None in versions.values()):
        raise NotDecided(filled("{0}: torch's version is not known; restarts connect up to 2.5 only", restarts))
    if affected:
        yield Finding(
            "when torchrun at {where} restarts ranks, they read the addresses of the failed attempt (torch {version})",
            where=restarts.where,
            version=affected[0],
            observed=filled("{0} rendezvous without {1}=1", backend, OWN_STORE)
            if backend in DYNAMIC
            else f"{backend} rendezvous",
            expected=filled("c10d rendezvous with {0}=1", OWN_STORE),
        )


def _version(text: str) -> tuple[int, ...] | None:
    """Of ``2.6.0a0+ecf3bae40a.nv25.01`` 2.6; None for what is no version."""
    try:
        return version_numbers(first_two_numbers(text))
    except ValueError:
        return None
