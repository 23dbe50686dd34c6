import shlex
from collections.abc import Collection, Iterator, Mapping

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.gpu import GpuCards
from doctor.facts.host_variables import NcclFiles
from doctor.facts.limits import RdmaAdapters
from doctor.facts.npu import NpuInventory, NpuProduct
from doctor.facts.python_env import PythonEnv
from doctor.facts.versions import CannVersion
from doctor.facts.visit import Reachability
from doctor.job import EnvSetting, LaunchConfig, invalid_settings, product_family
from doctor.job.nccl_lists import FIRST_TORCH, STRICT, list_faults
from doctor.job.variable_values import is_other_spelling, is_read_on_npus_alone, refused
from doctor.job.variable_versions import is_rule_of_release, release_numbers

VERSIONS = ("python", "cann", "gpus", "adapters", "accelerators")


@check(severity=ERROR, area="ranks", advisory=VERSIONS)
def launch_settings_invalid(
    launch: LaunchConfig,
    fleet: PerHost[Reachability] | None,
    npus: PerHost[NpuInventory] | None,
    products: PerHost[NpuProduct] | None,
    python: PerHost[PythonEnv] | None,
    cann: PerHost[CannVersion] | None,
    gpus: PerHost[GpuCards] | None,
    adapters: PerHost[RdmaAdapters] | None,
    files: PerHost[NcclFiles] | None,
    accelerators: PerHost[OtherAccelerators] | None,
) -> Iterator[Finding]:
    """The variables of HCCL, NCCL, OpenMP, torch and MindSpore whose values doctor knows have valid ones.

    ## Why it matters
    - HCCL: it stops at a value that is out of range (EI0001), on every rank that has it.
    - ASCEND: it ignores what follows the first space in ASCEND_RT_VISIBLE_DEVICES.
    - NCCL: from 2.24 on it ends at an unknown word of NCCL_ALGO or NCCL_PROTO, and it reads `true` as the number 0:
      `NCCL_P2P_DISABLE=true` disables nothing.
    - TORCH: it ends at a word that it does not know.
    - OMP: it ignores the value, and each rank then starts a thread for every core of the host.
    - A rank stops at a value that is not valid, or uses another one.

    ## What to do
    - Environment: in the job's script and in the shell that launches it: `unset {variable}`, or set it to what is
      expected. This check sees the variables of the shell that runs doctor, not those that a launch script sets later.
    - Option: in the launch line, write {variable} with what is expected.
    - File: on {host}, `sed -i '/^{variable}=/d' {path}` takes the line out; or correct it.

    ## Source
    HCCL documentation, environment variables (one page each); MindSpore documentation, dynamic cluster; CANN
    documentation, ASCEND_RT_VISIBLE_DEVICES. Words that one release accepts and another refuses are judged where a host
    has a release whose source was read: HCCL_ALGO, HCCL_DEBUG_CONFIG, HCCL_LOGIC_SUPERPOD_ID and HCCL_OP_RETRY_PARAMS
    of CANN 8.5, HCCL_OP_EXPANSION_MODE of 8.5 and 9.1, HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO of 9.1,
    PYTORCH_NPU_ALLOC_CONF of torch_npu 7.2.0. NCCL documentation, "Environment Variables", and its source, 2.29, for
    NCCL_ALGO and NCCL_PROTO of 2.12 to 2.30, and for its files, /etc/nccl.conf and ~/.nccl.conf; OpenMP 5.2, chapter
    21; PyTorch, c10d/Utils.hpp. It is a warning where the reader goes on with another value, and where only NCCL or
    CUDA would end and no host has a GPU, or Gloo alone carries the job, or only HCCL, CANN or torch_npu and no host has
    an NPU.
    """
    has_npu = any(inventory.devices or inventory.pci_count for inventory in (npus or {}).values())
    without_npu = bool(fleet) and not has_npu and launch.framework != "mindspore"
    with_gpus = {host for host, cards in (gpus or {}).items() if cards.pci}
    without_gpu = not with_gpus
    is_gloo = bool(fleet) and launch.is_gloo_alone((npus, gpus, accelerators) != (None, None, None))
    bare = [host for host, own in (adapters or {}).items() if host in with_gpus and not own]
    nccl, alone = _newest_nccl(python or {}), launch.world_size == 1
    for setting, ends in _of_nccl(launch.env, bare, nccl, alone):
        yield _finding(setting).as_warning(without_gpu or not ends)
    bare_hosts = set(bare)
    for host, own in (files or {}).items():
        for setting, ends in _of_nccl(launch.set_by_files(host), bare_hosts & {host}, nccl, alone):
            yield _finding(setting, own.paths[setting.variable]).as_warning(not ends).with_host(host)
    if launch.master_port < 1024:
        expected = "a port from 1024 on: root alone opens lower ones, and 22 is that of SSH"
        yield _finding(EnvSetting(launch.port_setting, str(launch.master_port), expected)).as_warning()
    installed = _installed(python or {}, cann or {})
    given = launch.problems
    always = {one for one in given if _is_certain(one, installed)}
    each = {name: set(invalid_settings(launch.env, name)) - set(given) for name in ("A1", "A2", "A3")}
    depends = {one for one in each["A1"] ^ each["A2"] | each["A1"] ^ each["A3"] if not is_other_spelling(one)}
    if depends:
        try:
            always |= each.get(product_family(launch, products), set())
        except Unreadable:
            yield from _judged(always, without_npu, is_gloo)
            names = ", ".join(sorted({setting.variable for setting in depends}))
            raise Unreadable(
                filled("{0}: whether the value is valid depends on the product; name it with --product", names)
            ) from None
    yield from _judged(always, without_npu, is_gloo)
    undecided = sorted({setting.variable for setting in set(given) - always})
    if undecided and installed == {("", "")}:
        raise Unreadable(
            filled(
                "{0}: CANN or torch_npu of another release may take the value, and the hosts' releases are not known",
                ", ".join(undecided),
            )
        )


def _of_nccl(
    environ: Mapping[str, str], bare: Collection[str], nccl: tuple[int, ...], alone: bool
) -> Iterator[tuple[EnvSetting, bool]]:
    """Settings that NCCL does not take, and whether it ends. ``bare``: hosts with GPUs that have no RDMA adapter."""
    if bare and (net := environ.get("NCCL_NET", "")).lower() == "ib":
        yield EnvSetting("NCCL_NET", net, filled("Socket: {0} has no RDMA adapter", next(iter(bare)))), True
    if environ.get("NCCL_IB_DISABLE") == "1" and environ.get("NCCL_IB_HCA"):
        expected = "unset, or 0: with it NCCL uses no adapter of NCCL_IB_HCA"
        yield EnvSetting("NCCL_IB_DISABLE", "1", expected), False
    for column in ("ends_nccl", "ignored"):
        for setting in refused(environ, column, alone=alone):
            yield setting, column == "ends_nccl"
    for fault in list_faults(environ, nccl, alone=alone):
        yield EnvSetting(fault.variable, fault.value, fault.expected), fault.ends


def _judged(settings: set[EnvSetting], without_npu: bool, is_gloo: bool) -> Iterator[Finding]:
    """``is_gloo``: Gloo alone carries the job, which reads no variable of NCCL."""
    for setting in sorted(settings):
        is_unread = without_npu and is_read_on_npus_alone(setting.variable)
        yield _finding(setting).as_warning(is_unread or (is_gloo and setting.variable.startswith("NCCL_")))


def _installed(python: Mapping[str, PythonEnv], cann: Mapping[str, CannVersion]) -> set[tuple[str, str]]:
    """CANN and torch_npu of each host; empty where a version is not known."""
    npu = {host: packages.packages.get("torch_npu", "") for host, packages in python.items()}
    toolkit = {host: fact.version for host, fact in cann.items()}
    return {("", "")} | {(toolkit.get(host, ""), npu.get(host, "")) for host in {*npu, *toolkit}}


def _newest_nccl(python: Mapping[str, PythonEnv]) -> tuple[int, ...]:
    """The newest NCCL of the hosts, by its package or by the PyTorch that brings it; empty where none is known."""
    found = []
    for packages in python.values():
        nccl = release_numbers(packages.nccl[1]) if packages.nccl else ()
        torch = release_numbers(packages.packages.get("torch", ""))
        found.append(nccl or (STRICT if torch >= FIRST_TORCH else ()))
    return max(found, default=())


def _is_certain(setting: EnvSetting, installed: set[tuple[str, str]]) -> bool:
    """Some host has a release that surely refuses the value, or every release does."""
    removed = setting.expected.startswith("unset: ")  # no release for this product has the setting
    return (
        removed
        or is_other_spelling(setting)
        or any(is_rule_of_release(setting.variable, *versions) for versions in installed)
    )


def _place(variable: str) -> str:
    return "Option" if variable.startswith("--") else "Environment"


def _finding(setting: EnvSetting, path: str | None = None) -> Finding:
    return Finding(
        "{variable} is {observed} in {path}; expected {expected}"
        if path
        else "{variable} is {observed}; expected {expected}",
        variable=setting.variable,
        observed=setting.value or '""',
        expected=setting.expected,
        path=shlex.quote(path) if path else None,
        case=("File" if path else _place(setting.variable), setting.variable.partition("_")[0]),
    )
