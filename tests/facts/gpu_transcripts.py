# ruff: noqa: E501 - outputs are kept as they were printed
"""What nvidia-smi and the driver printed on real machines, each with the public page that shows it.

A number is the id of a public file in the index of GitHub texts that the tests' author read.
"""

from __future__ import annotations

from typing import Any

GITHUB = "https://github.com"
ELEMENTS: list[tuple[str, dict[str, Any]]] = [
    # NVIDIA RTX PRO 6000 Blackwell, driver 590 (telegraf, pro-6000-maxq-blackwell-v13.xml): a distance to the limit.
    (
        (
            "<temperature><gpu_temp>24 C</gpu_temp><gpu_temp_tlimit>68 C</gpu_temp_tlimit>"
            "<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold></temperature>"
        ),
        {"temperature": 24, "temperature_limit": 94},
    ),
    ("<gpu_recovery_action>None</gpu_recovery_action>", {"recovery_action": ""}),
    # Public file 68287365195: a GPU that the table shows with ERR! in each place
    (
        "<temperature><gpu_temp>[GPU requires reset]</gpu_temp></temperature>",
        {"reset_required": True, "temperature": None},
    ),
    (
        (
            "<ecc_errors><volatile><sram_uncorrectable_parity>N/A</sram_uncorrectable_parity>"
            "<dram_uncorrectable>N/A</dram_uncorrectable></volatile></ecc_errors>"
        ),
        {"ecc_errors": None},
    ),
    ("<persistence_mode>Requested functionality has been deprecated</persistence_mode>", {"persistence": None}),
    # https://github.com/Project-HAMi/HAMi/issues/1422, driver 575.57.08
    (
        (
            "<gpu_reset_status><reset_required>Requested functionality has been deprecated</reset_required>"
            "<drain_and_reset_recommended>Requested functionality has been deprecated</drain_and_reset_recommended>"
            "</gpu_reset_status><gpu_recovery_action>None</gpu_recovery_action>"
        ),
        {"reset_required": False, "recovery_action": ""},
    ),
    (
        (  # NVML_FI_DEV_DRAIN_AND_RESET_STATUS of nvml.h, which gpu_recovery_action replaces
            "<gpu_reset_status><reset_required>No</reset_required>"
            "<drain_and_reset_recommended>Yes</drain_and_reset_recommended></gpu_reset_status>"
        ),
        {"reset_required": False, "recovery_action": "Drain and Reset"},
    ),
    # netdata, testdata/rtx-pro-6000-driver-580.xml: blanks around the values.
    ("<temperature><gpu_temp> 37 C </gpu_temp></temperature>", {"temperature": 37, "temperature_limit": None}),
    # NVIDIA GB10, https://github.com/marimo-team/marimo/pull/6822: the memory is the host's.
    ("<fb_memory_usage><total>N/A</total></fb_memory_usage>", {"memory": None}),
    ("<fb_memory_usage><total>Not Supported</total></fb_memory_usage>", {"memory": None}),
    # https://raw.githubusercontent.com/influxdata/telegraf, of an RTX 3080 whose processes are another container's
    (
        "<fb_memory_usage><total>10240 MiB</total><used>9184 MiB</used><free>660 MiB</free></fb_memory_usage>",
        {"memory": 10240, "memory_used": 9184},
    ),
    # https://github.com/leptonai/gpud/pull/80 and pull/128: pending rows, and GPUs without row remapping.
    (
        (
            "<remapped_rows><remapped_row_unc>4</remapped_row_unc><remapped_row_pending>Yes</remapped_row_pending>"
            "</remapped_rows>"
        ),
        {"row_remap_pending": True, "row_remap_failed": False},
    ),
    ("<remapped_rows>N/A</remapped_rows>", {"row_remap_pending": False, "row_remap_failed": False}),
    # https://github.com/siderolabs/extensions/pull/717: a GPU that waits for the fabric manager.
    ("<fabric><state>In Progress</state><status>N/A</status></fabric>", {"fabric_state": "In Progress"}),
    # https://github.com/bottlerocket-os/bottlerocket/pull/3873: A100 reports no state although all is well.
    ("<fabric><state>N/A</state><status>N/A</status></fabric>", {"fabric_state": "", "fabric_status": ""}),
    # Four RTX PRO 6000 Blackwell Server Edition, driver 595.58.03 (public file 56325051947), as the report has it.
    (
        (
            "<ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile><aggregate>"
            "<sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate><channel_repair_pending>No"
            "</channel_repair_pending><tpc_repair_pending>No</tpc_repair_pending><unrepairable_memory>No"
            "</unrepairable_memory></ecc_errors>"
        ),
        {"ecc_errors": 0, "caches_failing": False, "repair_pending": False, "is_unrepairable": False},
    ),
    # Public file 68598815792: the last of these is N/A.
    (
        (
            "<ecc_errors><tpc_repair_pending>No</tpc_repair_pending><unrepairable_memory>N/A</unrepairable_memory>"
            "</ecc_errors>"
        ),
        {"ecc_errors": None, "repair_pending": False, "is_unrepairable": False},
    ),
    (
        (
            "<ecc_errors><aggregate><sram_threshold_exceeded>Yes</sram_threshold_exceeded></aggregate>"
            "<channel_repair_pending>Yes</channel_repair_pending></ecc_errors>"
        ),
        {"caches_failing": True, "repair_pending": True},
    ),
    # Public file 58681883798: rows that could not be remapped.
    (
        (
            "<ecc_errors><volatile><sram_uncorrectable_parity>0</sram_uncorrectable_parity>"
            "<sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_uncorrectable>1</dram_uncorrectable>"
            "</volatile><unrepairable_memory>No</unrepairable_memory></ecc_errors><remapped_rows>"
            "<remapped_row_pending>No</remapped_row_pending><remapped_row_failure>Yes</remapped_row_failure>"
            "</remapped_rows>"
        ),
        {"ecc_errors": 1, "is_unrepairable": False, "row_remap_pending": False, "row_remap_failed": True},
    ),
    # https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/626: GB200, completed and unhealthy.
    (
        (
            "<fabric><state>Completed</state><status>Success</status><cliqueId>2</cliqueId>"
            "<clusterUuid>dc6e40c4-d722-4357-9ba6-5291dd461278</clusterUuid><health><summary>Unhealthy</summary>"
            "<bandwidth>Full</bandwidth></health></fabric>"
        ),
        {"fabric_state": "Completed", "fabric_faults": ("summary: Unhealthy",)},
    ),
    # https://github.com/Azure/azhpc-images/pull/506
    (
        (
            "<fabric><state>Completed</state><status>Insufficient Resources</status><cliqueId>0</cliqueId>"
            "<clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid></fabric>"
        ),
        {"fabric_state": "Completed", "fabric_status": "Insufficient Resources", "fabric_faults": ()},
    ),
    # https://github.com/leptonai/gpud/pull/1106: GB200, no health; public file 42511004217: all N/A.
    (
        (
            "<fabric><state>Completed</state><status>Success</status><cliqueId>4026</cliqueId><health>"
            "<bandwidth>Not Supported</bandwidth><route_unhealthy>Not Supported</route_unhealthy></health></fabric>"
        ),
        {"fabric_state": "Completed", "fabric_faults": ()},
    ),
    (
        (
            "<fabric><state>N/A</state><health><summary>N/A</summary><bandwidth>N/A</bandwidth>"
            "<route_recovery_in_progress>N/A</route_recovery_in_progress>"
            "<incorrect_configuration>N/A</incorrect_configuration></health></fabric>"
        ),
        {"fabric_state": "", "fabric_faults": ()},
    ),
    # https://github.com/NVIDIA/k8s-test-infra/pull/685: the values of a sound and of a faulty GB300.
    (
        (
            "<fabric><state>Completed</state><health><summary>Healthy</summary><bandwidth>Full</bandwidth>"
            "<route_recovery_in_progress>False</route_recovery_in_progress><route_unhealthy>False</route_unhealthy>"
            "<incorrect_configuration>None</incorrect_configuration></health></fabric>"
        ),
        {"fabric_faults": ()},
    ),
    (
        (
            "<fabric><health><summary>Unhealthy</summary><route_unhealthy>True</route_unhealthy>"
            "<incorrect_configuration>Insufficient Nvlinks</incorrect_configuration></health></fabric>"
        ),
        {
            "fabric_faults": (
                "summary: Unhealthy",
                "route unhealthy: True",
                "incorrect configuration: Insufficient Nvlinks",
            )
        },
    ),
    (
        "<ecc_errors><volatile><dram_uncorrectable>[Unknown Error]</dram_uncorrectable></volatile></ecc_errors>",
        {"ecc_errors": None},
    ),
]
FAILURES = [
    (
        f"{GITHUB}/NVIDIA/nvidia-docker/issues/1553",
        "Unable to determine the device handle for GPU 0000:09:00.0: Unknown Error",
        255,
        ("lost", ("0000:09:00.0",)),
    ),
    (
        f"{GITHUB}/stl88083365/unraid-nvidia-vgpu-driver/issues/37",
        "Unable to determine the device handle for GPU0000:04:00.0: Unknown Error",
        255,
        ("lost", ("0000:04:00.0",)),
    ),
    (
        f"{GITHUB}/NVIDIA/nvidia-container-toolkit/issues/69",
        "Unable to determine the device handle for GPU0000:65:00.0: Unknown Error",
        255,
        ("lost", ("0000:65:00.0",)),
    ),
    (
        "30815485165",
        "Unable to determine the device handle for GPU0000:CB:00.0: Unknown Error",
        255,
        ("lost", ("0000:cb:00.0",)),
    ),
    ("58977523224", "Unable to determine the device handle for GPU1: Unknown Error", 255, ("lost", ("1",))),
    (
        "11223772706",
        "Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error\nNo devices were found",
        255,
        ("lost", ("0000:01:00.0",)),
    ),
    (
        "51863788626",
        "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error",
        255,
        ("lost", ("0000:5f:00.0",)),
    ),
    (
        "46625305640",
        "Unable to determine the device handle for GPU 0000:01:00.0: Not Found",
        6,
        ("lost", ("0000:01:00.0",)),
    ),
    (
        "59088084215",
        "Unable to determine the device handle for GPU0000:25:00.0: Unknown Error",
        255,
        ("lost", ("0000:25:00.0",)),
    ),
    ("67259717826", "Unable to determine the device handle for GPU2: Unknown Error", 255, ("lost", ("2",))),
    ("55289094216", "Unable to determine the device handle for GPU0", 255, ("lost", ("0",))),
    (
        "71068929126",
        "Unable to determine the device handle for GPU1: 0000:07:00.0: Unknown Error",
        255,
        ("lost", ("0000:07:00.0",)),
    ),
    (
        f"{GITHUB}/JosephKJ/OWOD/issues/81",
        "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system",
        15,
        ("lost", ("0000:02:00.0",)),
    ),
    (
        f"{GITHUB}/AlexeyAB/darknet/issues/86",
        "Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.  Reboot\n the system to recover",
        15,
        ("lost", ("0000:03:00.0",)),
    ),
    (
        f"{GITHUB}/NVIDIA/dcgm-exporter/issues/604",
        "Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error",
        255,
        ("lost", ("000:ba:80.0",)),
    ),
    (
        f"{GITHUB}/NVIDIA/open-gpu-kernel-modules/issues/387",
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error.",
        255,
        ("lost", ("0000:0b:00.0",)),
    ),
    (
        f"{GITHUB}/pdbear/syno_nvidia_gpu_driver/issues/22",
        "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error",
        255,
        ("lost", ("0000:07:00.0",)),
    ),
    (
        f"{GITHUB}/jamesstringer90/Easy-GPU-PV/issues/276",
        "Unable to detect the device handle for GPU0000:B1:00.0: Unknown Error",
        255,
        ("lost", ("0000:b1:00.0",)),
    ),
    (
        f"{GITHUB}/cihlab/fics-cluster-guide/issues/53",
        "Unable to determine the device handle for GPU0000:20:00.0: Unknown Error",
        255,
        ("lost", ("0000:20:00.0",)),
    ),
    (
        f"{GITHUB}/xxd3vin/workspace/issues/19",
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error",
        255,
        ("lost", ("0000:0b:00.0",)),
    ),
    (
        f"{GITHUB}/meta-llama/llama-models/issues/200",
        "Unable to determine the device handle for GPU0000:17:00.0: Unknown Error",
        255,
        ("lost", ("0000:17:00.0",)),
    ),
    (
        f"{GITHUB}/haotian-liu/LLaVA/issues/1466",
        "Unable to determine the device handle for GPU0000:4F:00.0: Unknown Error",
        255,
        ("lost", ("0000:4f:00.0",)),
    ),
    (
        "61292000755",
        "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error",
        255,
        ("lost", ("0000:34:00.0",)),
    ),
    (
        f"{GITHUB}/tinygrad/open-gpu-kernel-modules/issues/47",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124",
        18,
        ("mismatch", ()),
    ),
    (
        f"{GITHUB}/lyulyul/shine-cluster/issues/30",
        "Failed to initialize NVML: Driver/library version mismatch",
        18,
        ("mismatch", ()),
    ),
    (
        f"{GITHUB}/NVIDIA/nvidia-container-toolkit/issues/817",
        "Failed to initialize NVML: Unknown Error",
        255,
        ("denied", ()),
    ),
    (
        "https://developer.nvidia.com/nvidia-system-management-interface, return value 9",
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.\n"
        ),
        9,
        ("driver", ()),
    ),
    (
        "61292000755",
        "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error\n",
        2,
        ("lost", ("0000:34:00.0",)),
    ),
    (
        "11223772706",
        "Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error\nNo devices were found\n",
        6,
        ("lost", ("0000:01:00.0",)),
    ),
    ("58977523224", "Unable to determine the device handle for GPU1: Unknown Error\n", 2, ("lost", ("1",))),
    (
        "https://developer.nvidia.com/nvidia-system-management-interface, return value 6",
        "No devices were found\n",
        6,
        ("no-devices", ()),
    ),
    ("the same, return value 4", "Failed to initialize NVML: Insufficient Permissions\n", 4, ("denied", ())),
    (
        "the same, return value 12",
        (
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
            "Driver is properly installed and present in your system.\n"
        ),
        12,
        ("other", ()),
    ),
]
NVLINKS = [
    # https://github.com/Azure/azhpc-diagnostics/issues/73
    (
        (
            "GPU 3: Tesla V100-SXM2-32GB (UUID: ...)\n         Link 0: 25.781 GB/s\n         Link 1: 25.781 GB/s\n"
            "         Link 2: 25.781 GB/s\n         Link 3: <inactive>\n         Link 4: 25.781 GB/s\n"
            "         Link 5: <inactive>\n"
        ),
        {3: 4},
        {3: (3, 5)},
    ),
    # https://github.com/leptonai/gpud/issues/1085
    (
        (
            "GPU 1: NVIDIA B200 (UUID: GPU-x)\n\t Link 0: 50 GB/s\nGPU 2: NVIDIA B200 (UUID: GPU-xxx)\n"
            "NVML: Unable to retrieve NVLink information as all links are inActive\n"
        ),
        {1: 1, 2: 0},
        {},
    ),
    # NVIDIA/open-gpu-kernel-modules issue 1150: every GPU of a host after Xid 149
    (
        (
            "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
            "NVML: Unable to retrieve NVLink information as all links are inActive\n"
        ),
        {0: 0},
        {},
    ),
    # https://github.com/NVIDIA/k8s-test-infra/issues/371
    ("GPU 0: NVIDIA GB200 (UUID: GPU-d1)\n         Link 0: 53.125 GB/s\n         Link 1: 53.125 GB/s\n", {0: 2}, {}),
    # Public file 68291289416: two A100 in PCIe slots, without a bridge
    (
        "".join(
            f"GPU {gpu}: NVIDIA A100 80GB PCIe (UUID: GPU-{gpu})\n"
            "NVML: Unable to retrieve Nvlink information as all links are inActive\n"
            for gpu in (0, 1)
        ),
        {0: 0, 1: 0},
        {},
    ),
    # Public file 70868425861: of eight GPUs one has lost all of its links
    (
        "".join(
            f"GPU {gpu}: NVIDIA B200 (UUID: GPU-{gpu})\n"
            + (
                "NVML: Unable to retrieve Nvlink information as all links are inActive\n"
                if gpu == 2
                else "".join(f"         Link {link}: 53.125 GB/s\n" for link in range(18))
            )
            for gpu in range(8)
        ),
        {gpu: 0 if gpu == 2 else 18 for gpu in range(8)},
        {},
    ),
    # https://github.com/leptonai/gpud, fabric-manager/testdata/nvidia-smi.nvlink.status.a100
    (
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5269b708-678a-b1a8-60f0-c90406537486)\n"
        + "".join(f"         Link {link}: 25 GB/s\n" for link in range(12)),
        {0: 12},
        {},
    ),
    # Public file 68443855628
    (
        "".join(
            f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
            + (
                "NVML: Unable to retrieve Nvlink information as all links are inActive\n"
                if gpu == 4
                else "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(18))
            )
            for gpu in range(8)
        ),
        {gpu: 0 if gpu == 4 else 18 for gpu in range(8)},
        {},
    ),
]
WITHOUT_NVLINK = [
    # https://github.com/leptonai/gpud, fabric-manager/testdata/nvidia-smi.nvlink.status.a10
    "",
    # Public file 59395519269
    "GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-0)\n\t NVML: Unable to retrieve NVLink information: Not Supported\n",
]


def _part(columns: int, text: str) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """The first rows of a longer table, and their cells: the name, and a connection to each device."""
    return text, tuple(tuple(line.split()[: columns + 1]) for line in text.splitlines()[1:])


TOPOLOGIES = [
    # https://github.com/NVIDIA/nccl/issues/1617
    (
        (
            "        GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
            "GPU0     X      NV6     PIX     SYS     6,14,22,30      3               N/A\n"
            "GPU1    NV6      X      SYS     PIX     4,12,20,28      1               N/A\n"
            "NIC0    PIX     SYS      X      SYS\nNIC1    SYS     PIX     SYS      X \n\nLegend:\n\n  X    = Self\n"
        ),
        (
            ("GPU0", "X", "NV6", "PIX", "SYS"),
            ("GPU1", "NV6", "X", "SYS", "PIX"),
            ("NIC0", "PIX", "SYS", "X", "SYS"),
            ("NIC1", "SYS", "PIX", "SYS", "X"),
        ),
    ),
    # JUWELS Booster (public file 3162292623): adapters by name, and rows that lack affinities
    (
        (
            "\t GPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tPIX\tSYS\t18-23,66-71\t3\n"
            "GPU1\tNV4\t X \tSYS\tPIX\t6-11,54-59\t1\nmlx5_0\tPIX\tSYS\t X \tSYS\t\t\nmlx5_1\tSYS\tPIX\tSYS\t X \t\t\n"
        ),
        (
            ("GPU0", "X", "NV4", "PIX", "SYS"),
            ("GPU1", "NV4", "X", "SYS", "PIX"),
            ("mlx5_0", "PIX", "SYS", "X", "SYS"),
            ("mlx5_1", "SYS", "PIX", "SYS", "X"),
        ),
    ),
    # Public file 71281284488: three GPUs in one machine, without NVLink
    (
        (
            "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tSYS\tSYS\t0-31\t0-1\t\tN/A\n"
            "GPU1\tSYS\t X \tPHB\t0-31\t0-1\t\tN/A\nGPU2\tSYS\tPHB\t X \t0-31\t0-1\t\tN/A\n"
        ),
        (("GPU0", "X", "SYS", "SYS"), ("GPU1", "SYS", "X", "PHB"), ("GPU2", "SYS", "PHB", "X")),
    ),
    # Public file 67550035920: V100, no affinities at all
    (
        "        GPU0    GPU1\nGPU0     X      NODE\nGPU1    NODE     X\n",
        (("GPU0", "X", "NODE"), ("GPU1", "NODE", "X")),
    ),
    # https://github.com/XueSongTap/XueSongTap.github.io, _posts/2024-01-04-nvidia-smi-more.md
    (
        (
            "        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      PHB     0-11            N/A\n"
            "GPU1    PHB      X      0-11            N/A\n"
        ),
        (("GPU0", "X", "PHB"), ("GPU1", "PHB", "X")),
    ),
    # https://github.com/noonghunna/club-3090/issues/1229
    _part(
        2,
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tPHB\t0-63\t0\t\tN/A\nGPU1\tPHB\t X \t0-63\t0\t\tN/A\n",
    ),
    # https://github.com/sgl-project/sglang/issues/13973
    _part(
        17,
        "        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    NIC2    NIC3    NIC4    "
        "NIC5    NIC6    NIC7    NIC8    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV18    NV18    NV18    NV18    NV18    NV18    NV18    PIX     NODE    NODE    SYS     SYS     "
        "SYS     SYS     SYS     SYS     0-23,96-119     0               N/A\n"
        "GPU3    NV18    NV18    NV18     X      NV18    NV18    NV18    NV18    SYS     SYS     SYS     NODE    PIX     "
        "SYS     SYS     SYS     SYS     24-47,120-143   1               N/A\n",
    ),
    # https://github.com/NVIDIA/nccl/issues/933
    _part(
        17,
        "        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    NIC2    NIC3    NIC4    "
        "NIC5    NIC6    NIC7    NIC8    CPU Affinity    NUMA Affinity\n"
        "GPU0     X      NV8     NV8     NV8     NV8     NV8     NV8     NV8     NODE    SYS     PIX     SYS     NODE    "
        "SYS     NODE    SYS     NODE    0-47,96-143     0\n"
        "GPU4    NV8     NV8     NV8     NV8      X      NV8     NV8     NV8     SYS     PIX     SYS     NODE    SYS     "
        "NODE    SYS     NODE    SYS     48-95,144-191   1\n",
    ),
    # https://github.com/deepseek-ai/DeepEP/issues/128: no GPU has a link to another
    _part(
        18,
        "        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    NIC2    NIC3    NIC4    "
        "NIC5    NIC6    NIC7    NIC8    NIC9    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      SYS     SYS     SYS     SYS     SYS     SYS     SYS     PIX     SYS     SYS     SYS     SYS     "
        "SYS     SYS     SYS     SYS     SYS     0-55,112-167    0               N/A\n",
    ),
    # https://github.com/NVIDIA/nccl/issues/2157: the header is not indented, columns of uneven width
    _part(
        26,
        "GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    NIC2    NIC3    NIC4    NIC5    "
        "NIC6    NIC7    NIC8    NIC9    NIC10   NIC11   NIC12  NIC13    NIC14   NIC15   NIC16   NIC17   CPU Affinity    "
        "NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV12    NV12    NV12    NV12    NV12    NV12    NV12    SYS     SYS     SYS     SYS     SYS     "
        "PXB     PXB     PXB     PXB     SYS     SYS     SYS     SYS    SYS      SYS     SYS     SYS     SYS     "
        "48-63,176-191   3               N/A\n",
    ),
    # https://github.com/NVIDIA/nccl-tests/issues/78: one column of affinities
    _part(
        26,
        "        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    GPU8    GPU9    GPU10   GPU11   GPU12   GPU13   GPU14   GPU15   mlx5_0  mlx5_1  mlx5_2  mlx5_3  mlx5_4  mlx5_5  mlx5_6  mlx5_7  mlx5_8  mlx5_9  CPU Affinity\n"
        "GPU0     X      NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     PIX     PXB     NODE    NODE    SYS     SYS     SYS     SYS     SYS     SYS     0-23,48-71\n"
        "GPU2    NV6     NV6      X      NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     PXB     PIX     NODE    NODE    SYS     SYS     SYS     SYS     SYS     SYS     0-23,48-71\n"
        "GPU4    NV6     NV6     NV6     NV6      X      NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NV6     NODE    NODE    PIX     PXB     SYS     SYS     SYS     SYS     SYS     SYS     0-23,48-71\n",
    ),
    # https://github.com/NVIDIA/nccl-tests/issues/273
    _part(
        9,
        "        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NODE    NODE    NODE    SYS     SYS     SYS     SYS     SYS     0-89    0               N/A\n"
        "GPU4    SYS     SYS     SYS     SYS      X      NODE    NODE    NODE    SYS     90-179  1               N/A\n"
        "NIC0    SYS     SYS     SYS     SYS     SYS     SYS     SYS     SYS      X\n",
    ),
    # https://github.com/NVIDIA/nccl-tests/issues/320
    _part(
        5,
        "        GPU0    GPU1    GPU2    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV4     NODE    NODE    NODE    64-71   1               N/A\n"
        "GPU1    NV4      X      NODE    NODE    NODE    64-71   1               N/A\n"
        "GPU2    NODE    NODE     X      PHB     PHB     64-71   1               N/A\n"
        "NIC0    NODE    NODE    PHB      X      PIX\n"
        "NIC1    NODE    NODE    PHB     PIX      X\n",
    ),
    # https://github.com/lattice/quda/issues/669
    _part(
        9,
        "\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tmlx5_0\tCPU Affinity\n"
        "GPU0\t X \tPIX\tPXB\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\t0-13\n"
        "GPU4\tSYS\tSYS\tSYS\tSYS\t X \tPIX\tPXB\tPXB\tPHB\t14-27\n"
        "mlx5_0\tSYS\tSYS\tSYS\tSYS\tPHB\tPHB\tPHB\tPHB\t X \t\n",
    ),
    # https://github.com/deepseek-ai/DeepEP/issues/145: a column is wider than the others
    _part(
        26,
        "        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    NIC2    NIC3    NIC4    NIC5    NIC6    NIC7     NIC8    NIC9    NIC10   NIC11   NIC12   NIC13   NIC14   NIC15   NIC16   NIC17     CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV18    NV18    NV18    NV18    NV18    NV18    NV18    PXB     PXB     PXB     PXB     NODE    NODE    NODE    NODE     NODE    NODE    SYS     SYS     SYS     SYS     SYS     SYS     SYS     SYS     0-55,112-167    0               N/A\n"
        "GPU2    NV18    NV18     X      NV18    NV18    NV18    NV18    NV18    NODE    NODE    NODE    NODE    NODE    NODE    PXB     PXB      PXB     PXB     SYS     SYS     SYS     SYS     SYS     SYS     SYS     SYS     0-55,112-167    0               N/A\n",
    ),
    # https://github.com/deepseek-ai/DeepEP/issues/137
    _part(
        13,
        "        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    NIC2    NIC3    NIC4    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV18    NV18    NV18    NV18    NV18    NV18    NV18    PIX     NODE    SYS     SYS     SYS     0-27,56-83      0               N/A\n"
        "GPU6    NV18    NV18    NV18    NV18    NV18    NV18     X      NV18    SYS     SYS     NODE    NODE    PIX     28-55,84-111    1               N/A\n",
    ),
    # https://github.com/NVIDIA/nccl/issues/1363: the columns are not below their names
    _part(
        18,
        "       GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    NIC2    NIC3    NIC4    NIC5    NIC6    NIC7    NIC8    NIC9   CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV18    NV18    NV18    NV18    NV18    NV18    NV18    PIX     NODE    NODE    NODE    SYS     SYS     SYS     SYS     SYS     SYS   0-55,112-167    0               N/A\n"
        "GPU4    NV18    NV18    NV18    NV18     X      NV18    NV18    NV18    SYS     SYS     SYS     SYS     PIX     NODE    NODE    NODE    NODE    NODE   56-111,168-223  1               N/A\n",
    ),
    # https://github.com/NVIDIA/DCGM/issues/149
    _part(
        18,
        "        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    NIC2    NIC3    NIC4    NIC5    NIC6    NIC7    NIC8    NIC9    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV12    NV12    NV12    NV12    NV12    NV12    NV12    PXB     PXB     SYS     SYS     SYS     SYS     SYS     SYS     SYS     SYS     48-63,176-191   3               N/A\n"
        "GPU4    NV12    NV12    NV12    NV12     X      NV12    NV12    NV12    SYS     SYS     SYS     SYS     PXB     PXB     SYS     SYS     SYS     SYS     112-127,240-255 7               N/A\n",
    ),
    # https://github.com/sgl-project/sglang/issues/7888: a virtual machine
    _part(
        16,
        "        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    NIC2    NIC3    NIC4    NIC5    NIC6    NIC7    CPU Affinity    NUMA Affinity     GPU NUMA ID\n"
        "GPU0     X      NV18    NV18    NV18    NV18    NV18    NV18    NV18    PIX     PHB     PHB     PHB     PHB     PHB     PHB     PHB     0-187   0-1      N/A\n"
        "GPU1    NV18     X      NV18    NV18    NV18    NV18    NV18    NV18    PHB     PIX     PHB     PHB     PHB     PHB     PHB     PHB     0-187   0-1      N/A\n",
    ),
]
XIDS = [
    # https://github.com/leptonai/gpud, components/accelerator/nvidia/xid/testdata/dmesg-with-xid-119.log
    (
        (
            "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC "
            "response from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4)."
        ),
        ("Xid", 119, "0000:9b:00"),
    ),
    # https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1151
    ("NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.", ("Xid", 79, "0000:2b:00")),
    # https://github.com/leptonai/gpud, components/accelerator/nvidia/xid/nvlink_logs_test.go
    (
        "NVRM: Xid (PCI:0000:04:00): 145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040 0x00000000 0x00000000)",
        ("Xid", 145, "0000:04:00"),
    ),
    # https://pastebin.com/xJaypMZt: the form of drivers before 340
    ("NVRM: Xid (0000:01:00): 79, C 00000005 SC 00000007 M 00001ffc Data ffffffff", ("Xid", 79, "0000:01:00")),
    # NVIDIA, Dynamic Page Retirement, Visibility
    (
        "NVRM: Xid (PCI:0000:03:00): 48, An uncorrectable double bit error (DBE) has been detected",
        ("Xid", 48, "0000:03:00"),
    ),
    # https://github.com/leptonai/gpud, sxid: a fatal and a non-fatal error
    (
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)",
        ("SXid", 24007, "0000:c3:00.0"),
    ),
    ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", None),
    # stas00/ml-engineering, compute/accelerator/nvidia/debug.md: a row was replaced, as it should
    (
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
        None,
    ),
    # a fault of the program, not of the GPU (find_string "NVRM: Xid (PCI:")
    ("NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault", None),
    # Public files 62599419737, 52408671182, 68445503068, 58732587235: the recommendation, by drivers 570 to 595
    (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)",
        ("Xid", 154, "0000:01:00"),
    ),
    (
        "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        ("Xid", 154, "0000:02:00"),
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)",
        ("Xid", 154, "0000:01:00"),
    ),
    (
        "NVRM: Xid (PCI:0000:00:1e): 154, GPU recovery action changed from 0x0 (None) to 0x1 (Drain and Reset)",
        ("Xid", 154, "0000:00:1e"),
    ),
    (
        "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        None,
    ),
    # An H100 in a virtual machine, driver 580.159.04: a write to an address of nobody, and its end
    (
        "NVRM: Xid (PCI:0000:00:06): 31, pid=1780, name=python3, channel 0x000000db, intr 00000000. MMU Fault",
        None,
    ),
    ("NVRM: Xid (PCI:0000:00:06): 43, pid=1779, name=python3, channel 0x000001ae", None),
    # https://pastebin.com/NGng33SB
    ("NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000", None),
]
