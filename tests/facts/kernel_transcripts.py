# ruff: noqa: E501 - messages are kept as they were printed
"""What real kernels printed, where it was published, and which checks must report it.

A number is the id of a public file in the index of GitHub texts that the tests' author read.
"""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """One record of the kernel's log."""

    source: str
    text: str
    checks: frozenset[str] = frozenset()
    """That must report it; none for what is no fault of the host."""


GPU = frozenset({"gpu-xid-logged"})
HARDWARE = frozenset({"hardware-error-logged"})
HUNG = frozenset({"task-hung-logged"})
MEMORY = frozenset({"out-of-memory-logged"})
DISK = frozenset({"file-system-failed"})
LINK = frozenset({"network-link-flapping"})
NETWORK_CARD = frozenset({"network-card-failed"})
FILE_SERVER = frozenset({"file-server-silent-logged"})
AMD = frozenset({"amd-gpu-fault-logged"})
TABLE = frozenset({"kernel-table-full-logged"})
CRASH = frozenset({"library-crash-logged"})
GITHUB = "https://github.com"

MESSAGES = (
    Message(
        f"{GITHUB}/Requiem4Eternity/Appstream/issues/97",
        "[drm:amdgpu_device_gpu_recover [amdgpu]] *ERROR* VRAM is lost!",
        AMD,
    ),
    Message(f"{GITHUB}/ROCm/legacy-rocm-build/issues/2494", "[drm] VRAM is lost due to GPU reset!", AMD),
    Message(f"{GITHUB}/wayvr-org/wayvr/issues/650", "amdgpu 0000:2d:00.0: VRAM is lost due to GPU reset!", AMD),
    Message(f"{GITHUB}/ishitatsuyuki/acominer/issues/9", "amdgpu: \n failed to send message 200 ret is 0 ", AMD),
    Message(
        f"{GITHUB}/ROCm/legacy-rocm-build/issues/5745",
        "amdgpu 0000:c1:00.0: [drm:amdgpu_ib_ring_tests [amdgpu]] *ERROR* IB test failed on vpe (-110).",
        AMD,
    ),
    Message(
        f"{GITHUB}/ROCm/legacy-rocm-build/issues/5745 (2)",
        "amdgpu 0000:c1:00.0: amdgpu: ib ring test failed (-110).",
        AMD,
    ),
    Message(
        f"{GITHUB}/ROCm/legacy-rocm-build/issues/6273", "amdgpu 0000:c5:00.0: amdgpu: Ring gfx_0.0.0 reset failed", AMD
    ),
    Message(
        f"{GITHUB}/QubesOS/qubes-issues/issues/7971",
        "amdgpu 0000:00:06.0: amdgpu: SECUREDISPLAY: securedisplay ta ucode is not available",
    ),
    Message(
        f"{GITHUB}/QubesOS/qubes-issues/issues/7971 (2)",
        "amdgpu 0000:00:06.0: amdgpu: SMU driver if version not matched",
    ),
    # -- the tests of leptonai/gpud (components/*/kmsg_matcher_test.go), 4a8de33a: what it reports, and what it does not
    Message(
        "gpud, nvlink", "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!", GPU
    ),
    Message(
        "gpud, nvlink (2)", "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!", GPU
    ),
    Message("gpud, nvlink (3)", "NVRM: NVLink link training completed"),
    Message("gpud, disk", "md/raid10:md2: Disk failure on nvme2n1p1 detected, failing array", DISK),
    Message("gpud, disk (2)", "EXT3-fs (dm-6): Remounting filesystem read-only", DISK),
    Message("gpud, disk (3)", "BTRFS: Remounting filesystem read-only", DISK),
    Message("gpud, disk (4)", "block nvme0n1: no available path - failing I/O", DISK),
    Message("gpud, disk (5)", "md: raid1 personality registered for level 1"),
    Message("gpud, disk (6)", "EXT4-fs (sda1): mounted filesystem with ordered data mode"),
    Message("gpud, disk (7)", "EXT4-fs: Remounting filesystem read-write"),
    Message("gpud, nfs", "nfs: server 7.247.192.16 not responding, timed out", FILE_SERVER),
    Message("gpud, nfs (2)", "nfs: server 7.247.192.16 OK"),
    Message("gpud, nfs (3)", "nfs4_reclaim_open_state: Lock reclaim failed!", FILE_SERVER),
    Message("gpud, nfs (4)", "nfs: server 7.247.192.16 starting"),
    Message("gpud, nfs (5)", "NFS: Registering the id_resolver key type"),
    Message("gpud, os (2)", "VFS: file-max limit reached"),
    Message(
        "gpud, infiniband",
        "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature",
        NETWORK_CARD,
    ),
    Message(
        "gpud, infiniband (2)",
        "mlx5_port_module_event: Port module event[error]: module 0, Cable error, Low Signal",
        NETWORK_CARD,
    ),
    Message("gpud, infiniband (3)", "mlx5_core: ACCESS_REG successful"),
    Message("gpud, infiniband (4)", "mlx5_cmd_out_err:838:(pid 1441871): OTHER_CMD(0x123) failed"),
    Message(
        "gpud, nccl",
        "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]",
        CRASH,
    ),
    Message("gpud, nccl (2)", "segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libcuda.so"),
    Message("gpud, xid", "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9).", GPU),
    # -- the kernel's own formats, with the values of the findings of devices that were lost
    Message("pciehp_ctrl.c", "pcieport 0000:97:01.0: pciehp: Slot(5): Link Down", HARDWARE),
    Message("pciehp_ctrl.c (2)", "pcieport 0000:97:01.0: pciehp: Slot(5): Card not present", HARDWARE),
    Message("pciehp_ctrl.c (3)", "pcieport 0000:97:01.0: pciehp: Slot(5): Card present"),
    Message("pciehp_ctrl.c (4)", "pcieport 0000:97:01.0: pciehp: Slot(5): Link Up"),
    Message("pciehp_ctrl.c (5)", "pcieport 0000:97:01.0: pciehp: Slot(5): Link Down/Up ignored (recovered by DPC)"),
    Message(
        "pciehp_hpc.c",
        "pcieport 0000:97:01.0: pciehp: Slot #5 AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ Surprise+",
    ),
    Message("dpc.c", "pcieport 0000:15:01.0: DPC: containment event, status:0x1f01 source:0x0000", HARDWARE),
    Message("dpc.c (2)", "pcieport 0000:15:01.0: DPC: enabled with IRQ 121"),
    Message("dpc.c (3)", "pcieport 0000:15:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+"),
    Message(
        "pci.c", "nvidia 0000:9b:00.0: Unable to change power state from D3cold to D0, device inaccessible", HARDWARE
    ),
    Message(
        "pci.c (2)",
        "pci 0000:9b:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
        HARDWARE,
    ),
    Message("pci.c (3)", "mlx5_core 0000:3b:00.0: not ready 65535ms after FLR; giving up", HARDWARE),
    Message("pci.c (4)", "mlx5_core 0000:3b:00.0: not ready 1023ms after FLR; waiting"),
    Message(
        "blk-core.c",
        "blk_update_request: I/O error, dev nvme0n1, sector 1048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0",
        DISK,
    ),
    Message("blk-core.c (2)", "blk_update_request: I/O error, dev sda, sector 209715072", DISK),
    Message(
        "blk-core.c (3)",
        "critical medium error, dev sdc, sector 11721045120 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        DISK,
    ),
    Message(
        "blk-core.c (4)",
        "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
    ),
    Message("blk-core.c (5)", "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0"),
    Message(
        "blk-core.c (6)",
        "critical target error, dev sdb, sector 2048 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 2",
    ),
    Message(
        "blk-core.c (7)",
        "critical target error, dev sdb, sector 2048 op 0x9:(WRITE_ZEROES) flags 0x800 phys_seg 0 prio class 2",
    ),
    Message("nvme/host/pci.c", "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", DISK),
    Message(
        "nvme/host/pci.c (2)",
        "nvme nvme0: I/O tag 523 (120b) opcode 0x2 (I/O Cmd) QID 9 timeout, reset controller",
        DISK,
    ),
    Message("nvme/host/pci.c (3)", "nvme nvme0: I/O 22 QID 5 timeout, completion polled"),
    Message(
        "ext4/super.c",
        "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm python: reading directory lblock 0",
        DISK,
    ),
    Message(
        "xfs_error.c",
        "XFS (nvme0n1p1): Metadata corruption detected at xfs_agf_read_verify+0x70/0x120 [xfs], xfs_agf block 0x1",
        DISK,
    ),
    Message("xfs_super.c", "XFS (nvme0n1p1): Mounting V5 Filesystem"),
    Message("xfs_super.c (2)", "XFS (nvme0n1p1): Ending clean mount"),
    Message(
        "btrfs/volumes.c", "BTRFS error (device sdb1): bdev /dev/sdb1 errs: wr 0, rd 1, flush 0, corrupt 0, gen 0", DISK
    ),
    Message("btrfs/disk-io.c", "BTRFS info (device sdb1): disk space caching is enabled"),
    Message(
        "mlx5/health.c",
        "mlx5_core 0000:3b:00.0: poll_health:815:(pid 0): Fatal error 1 detected",
        NETWORK_CARD,
    ),
    Message("mlx5/health.c (2)", "mlx5_core 0000:3b:00.0: mlx5_error_sw_reset:243:(pid 1200): start", NETWORK_CARD),
    Message(
        "mlx5/cmd.c",
        "mlx5_core 0000:3b:00.0: wait_func:1150:(pid 23567): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
        NETWORK_CARD,
    ),
    Message(
        "mlx5/events.c",
        "mlx5_core 0000:0c:00.0: temp_warn:237:(pid 0): High temperature on sensors with bit set 0 1",
        NETWORK_CARD,
    ),
    Message("mlx5/events.c (2)", "mlx5_core 0000:0c:00.0: Port module event: module 0, Cable plugged"),
    Message("mlx5/fw.c", "mlx5_core 0000:0c:00.0: firmware version: 28.39.1002"),
    Message(
        "hclge_err.c",
        "hns3 0000:7d:00.0: PPP_MPF_ABNORMAL_INT_ST2 rx_q_search_miss found [error status=0x20000000]",
        NETWORK_CARD,
    ),
    Message("ena_netdev.c", "ena 0000:00:05.0: Keep alive watchdog timeout.", NETWORK_CARD),
    Message("efa_com.c", "infiniband efa_0: Wait for completion (polling) timeout", NETWORK_CARD),
    Message("neighbour.c", "neighbour: arp_cache: neighbor table overflow!", TABLE),
    Message("nf_conntrack_core.c", "nf_conntrack: nf_conntrack: table full, dropping packet", TABLE),
    Message(
        "nf_conntrack_core.c (2)",
        "nf_conntrack: default automatic helper assignment has been turned off for security reasons",
    ),
    Message("tcp.c", "TCP: out of memory -- consider tuning tcp_mem", TABLE),
    Message("import.c (2)", "Lustre: Lustre: Build Version: 2.15.3"),
    Message(
        "import.c",
        "LustreError: 167-0: scratch-MDT0000-mdc-ffff9d1d6e0c4000: This client was evicted by scratch-MDT0000; in progress operations using this service will fail.",
        FILE_SERVER,
    ),
    Message(
        "amdgpu_ras.c",
        "amdgpu 0000:05:00.0: amdgpu: socket: 0, die: 0 1 uncorrectable hardware errors detected in umc block",
        AMD,
    ),
    Message(
        "amdgpu_ras.c (2)",
        "amdgpu 0000:05:00.0: amdgpu: socket: 0, die: 0 4 correctable hardware errors detected in total in umc block",
    ),
    Message("amdgpu_device.c", "amdgpu 0000:03:00.0: amdgpu: GPU reset(2) failed", AMD),
    Message("amdgpu_device.c (2)", "amdgpu 0000:03:00.0: amdgpu: SMU is initialized successfully!"),
    # -- GPUs
    Message("56886461816", "NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x24:0x65:1185)", GPU),
    Message("56886461816 (2)", "NVRM: GPU 0000:02:00.0: rm_init_adapter failed, device minor number 0"),
    Message("27453639056", "NVRM: GPU 0000:05:00.0: RmInitAdapter failed! (0x24:0x72:1447)", GPU),
    Message("24471462191", "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x25:0x65:1468)", GPU),
    Message("6864993131", "NVRM: GPU 0001:00:00.0: RmInitAdapter failed! (0x63:0x55:2344)", GPU),
    Message("58558420571", "NVRM: GPU 0000:00:03.0: RmInitAdapter failed! (0x22:0x65:884)", GPU),
    Message("55080197096", "NVRM: GPU 0000:04:00.0: RmInitAdapter failed! (0x62:0x40:2192)", GPU),
    Message("21139770565", "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", GPU),
    Message("21139770565 (2)", "NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off the bus.", GPU),
    Message(
        f"{GITHUB}/NVIDIA/NVSentinel/issues/155",
        "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\nNVRM: fallen off the bus and is not responding to commands.",
        GPU,
    ),
    Message(
        f"{GITHUB}/NVIDIA/open-gpu-kernel-modules/issues/1150",
        "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
    ),
    Message(
        f"{GITHUB}/leptonai/gpud/pull/1160",
        "NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)",
    ),
    Message(
        f"{GITHUB}/leptonai/gpud/pull/1160 (2)",
        "NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
        GPU,
    ),
    Message(
        f"{GITHUB}/leptonai/gpud/pull/1174",
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
    ),
    Message(
        f"{GITHUB}/leptonai/gpud/pull/1174 (2)",
        "NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
        GPU,
    ),
    Message(
        f"{GITHUB}/leptonai/gpud/pull/500",
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=28232, name=cache_mgr_main, Timeout after 45s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20810108 0x3e0).",
        GPU,
    ),
    Message(
        f"{GITHUB}/leptonai/gpud/pull/46",
        "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter",
    ),
    Message(
        f"{GITHUB}/leptonai/gpud/pull/46 (2)",
        "NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
        GPU,
    ),
    Message(
        f"{GITHUB}/leptonai/gpud/pull/46 (3)",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
    ),
    Message("28179945651", "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX Short Error Rate"),
    Message(
        "28179945651 (2)", "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 28006, Non-fatal, Link 29 MC TS crumbstore MCTO"
    ),
    Message("68928821205", "nvidia-nvswitch0: SXid (PCI:0000:59:00.0): 23001, Fatal, Link 12 Always Fatal", GPU),
    # -- PCIe
    Message("42561576571", "pcieport 0000:00:1d.0: AER: Corrected error received: 0000:00:1d.0"),
    Message(
        "42561576571 (2)",
        "pcieport 0000:00:1d.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    ),
    Message(
        "35666355451",
        "pcieport 0000:00:1b.4: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00dc(Receiver ID)",
    ),
    Message("16368094201", "pcieport 0000:00:1c.5: AER: Correctable error received: 0000:00:1c.5"),
    Message(
        "15083256069",
        "pcieport 0000:00:1b.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Receiver ID)",
        HARDWARE,
    ),
    Message(
        "951259060",
        "0000:50:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Requester ID)",
        HARDWARE,
    ),
    Message(
        "7762338909",
        "pcieport 0000:00:1d.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:00:1d.0",
        HARDWARE,
    ),
    Message(
        "42174273924",
        "pcieport 0000:0c:00.0: AER: Uncorrectable (Fatal) error message received from 0000:0c:00.0",
        HARDWARE,
    ),
    Message(
        "42174273924 (2)",
        "pcieport 0000:0c:00.0: CXL Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)",
        HARDWARE,
    ),
    Message(
        "39840273729",
        "vfio-pci 0015:01:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)",
        HARDWARE,
    ),
    # -- processor and memory
    Message(
        "41392874282", "mce: [Hardware Error]: CPU 0: Machine Check Exception: f Bank 3: bd80000000070134", HARDWARE
    ),
    Message(
        "25530737477", "mce: [Hardware Error]: CPU 120: Machine Check Exception: f Bank 1: bd80000000100134", HARDWARE
    ),
    Message("25530737477 (2)", "mce: [Hardware Error]: Machine check events logged"),
    Message("22618337236", "mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 5: bea0000000000108", HARDWARE),
    Message("61542252554", "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: bea0000000000108", HARDWARE),
    Message("57091468740", "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: a600000000020408", HARDWARE),
    Message("56961384765", "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 128: 000000008844000f"),
    Message("68700420348", "[Hardware Error]: Corrected error, no action required."),
    Message(
        "68700420348 (2)",
        "EDAC MC0: 1 CE on mc#0csrow#3channel#1 (csrow:3 channel:1 page:0x117fcc offset:0xb40 grain:64 syndrome:0xc00)",
    ),
    Message("56961384765 (2)", "CPU2: Core temperature above threshold, cpu clock throttled (total events = 11)"),
    # -- hangs
    Message("5424256725", "INFO: task cryptomgr_test:391009 blocked for more than 120 seconds.", HUNG),
    Message("39012003915", "INFO: task DataXceiver for:7494 blocked for more than 120 seconds.", HUNG),
    Message("67417105785", "INFO: task A:1890 blocked for more than 120 seconds.", HUNG),
    Message("15666226260", "INFO: task kworker/u16:9:7088 blocked for more than 120 seconds.", HUNG),
    Message("41586688601", "INFO: task kmcheck:72 blocked for more than 122 seconds.", HUNG),
    Message("56878457066", "BUG: soft lockup - CPU#0 stuck for 61s! [mv:5593]", HUNG),
    Message("40522704461", "watchdog: BUG: soft lockup - CPU#2 stuck for 863s! [NetworkManager:795]", HUNG),
    Message("46716488306", "watchdog: BUG: soft lockup - CPU#28 stuck for 22s! [kworker/28:1:1760]", HUNG),
    Message("11223960198", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 27", HUNG),
    Message("18949630128", "watchdog: Watchdog detected hard LOCKUP on cpu 3", HUNG),
    Message("26326733218", "rcu: INFO: rcu_sched self-detected stall on CPU", HUNG),
    Message("22702290613", "rcu: INFO: rcu_preempt self-detected stall on CPU", HUNG),
    # -- memory
    Message(
        "69685777819",
        "Out of memory: Killed process 571 (python) total-vm:2071252kB, anon-rss:257104kB file-rss:1576kB",
        MEMORY,
    ),
    Message(
        "6367897241",
        "Memory cgroup out of memory: Killed process 23793 (leaker) total-vm:2623712kB, anon-rss:506500kB, file-rss:1268kB, shmem-rss:0kB",
        MEMORY,
    ),
    Message(
        "1237763179",
        "Out of memory: Killed process 1669 (xdg-desktop-por) total-vm:105068kB, anon-rss:9792kB, file-rss:10972kB, shmem-rss:0kB, UID:1000 pgtables:136kB oom_score_adj:200",
        MEMORY,
    ),
    Message(
        "3725836839",
        "Killed process 21945 (tidb-server), UID 1000, total-vm:33027492kB, anon-rss:31303276kB, file-rss:0kB, shmem-rss:0kB",
        MEMORY,
    ),
    Message(
        "26154715284", "Killed process 2603 (flasherav) total-vm:1498536kB, anon-rss:721784kB, file-rss:4228k", MEMORY
    ),
    Message("26154715284 (2)", "Out of Memory: Killed process 2592 (mysql).", MEMORY),
    Message("43700979789", "Out of memory: Kill process 18694 (perl) score 246 or sacrifice child"),
    Message(
        "43700979789 (2)", "Killed process 18694 (perl) total-vm:1972392kB, anon-rss:1953348kB, file-rss:0kB", MEMORY
    ),
    Message(
        "6367897241 (2)", "oom_reaper: reaped process 23793 (leaker), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB"
    ),
    # -- file systems
    Message("22643249063", "EXT4-fs (sdb7): Remounting filesystem read-only", DISK),
    Message("53265509708", "EXT4-fs (dm-17): Remounting filesystem read-only", DISK),
    Message("37930571282", "XFS (sda3): Filesystem has been shut down due to log error (0x2).", DISK),
    Message("24980202004", "XFS (dm-0): log I/O error -5", DISK),
    Message("13823127360", "XFS (vda3): Filesystem has been shut down due to log error (0x2). ", DISK),
    Message("56817569689", "EXT4-fs (nvme0n1p6): orphan cleanup on readonly fs"),
    Message("23301959047", "nfs: server 10.100.0.60 not responding, still trying", FILE_SERVER),
    # -- links: three times, as a single one is usual
    Message("23270637599", "mlx5_core 0000:01:00.0 enp1s0f0np0: Link down", LINK),
    Message("20528609102", "mlx5_core 0000:04:00.0 enp4s0np0: Link down", LINK),
    Message("48395660035", "igc 0000:03:00.0 enp3s0: NIC Link is Down", LINK),
    Message("28786753570", "e1000e: eth1 NIC Link is Down", LINK),
    Message("14110006045", "e1000e 0000:00:1f.6 eth0: NIC Link is Down", LINK),
    Message("39840273729 (2)", "pcieport 0015:00:00.0: pciehp: Slot(21): Link Down/Up ignored"),
    # -- network cards
    Message(
        "31100380675",
        "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).",
        NETWORK_CARD,
    ),
    Message(
        "14856298585",
        "mlx5_core 0000:0d:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count",
        NETWORK_CARD,
    ),
    Message(
        "14856298585 (2)",
        "mlx5_core 0000:0d:00.0: print_health_info:431:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:",
        NETWORK_CARD,
    ),
    Message(
        "60454564122", "mlx5_core: Port module event[error]: module 0, Cable error, High Temperature", NETWORK_CARD
    ),
    Message(
        "41586688601 (2)",
        "mlx5_core 0000:00:00.1: mlx5_health_try_recover:338:(pid 5553): health recovery flow aborted, PCI reads still not working",
        NETWORK_CARD,
    ),
    Message(
        "8195439580",
        "mlx5_core 0000:41:04.2: mlx5_cmd_out_err:782:(pid 8321): CREATE_GENERAL_OBJECT(0xa00) op_mod(0xd) failed, status bad parameter(0x3), syndrome (0x5fa1c), err(-22)",
    ),
    Message("63120740381", "mlx5_core 0000:01:00.1: mlx5_sriov_enable:195:(pid 30662): pci_enable_sriov failed : -5"),
    # -- other cards' links, on x86 and on Kunpeng
    Message("9838997061", "hns3 0000:bd:00.0 enp189s0f0: link down", LINK),
    Message("3649206266", "hns3 0000:bd:00.1 enp189s0f1: link up"),
    Message("kernel, hinic_main.c", "hinic 0000:84:00.0 enp132s0: HINIC_Link is DOWN", LINK),
    Message("53115452667", "mlx5_core 0000:53:00.0 mlx5_3: Port: 1 Link DOWN", LINK),
    Message("68434739174", "mlx5_core 0000:01:00.1 rocep1s0f1: Port: 1 Link DOWN", LINK),
    Message("33972341287", "mlx5_core 0000:08:00.0 rdmap8s0f0: Port: 2 Link ACTIVE"),
    Message("38243050104", "mlx5_core 0000:04:00.0 ens1f0: Link down", LINK),
    Message("56719647825", "r8169 0000:05:00.0: eth0: link down", LINK),
    Message("56712746039", "IPv6: ADDRCONF(NETDEV_UP): wlan1: link is not ready"),
    Message("30939856362", "bond0: link status definitely down for interface eth0, disabling it"),
    # -- other cards' faults
    Message("3289997771", "NETDEV WATCHDOG: eth1 (mlx5_core): transmit queue 19 timed out", NETWORK_CARD),
    Message(
        "19706602530",
        "ice 0000:b1:00.0 ens801f0np0: NETDEV WATCHDOG: CPU: 38: transmit queue 14 timed out 80692736 ms",
        NETWORK_CARD,
    ),
    Message(
        "57663927841",
        "iavf 0000:00:05.0 enp0s5: NETDEV WATCHDOG: CPU: 1: transmit queue 0 timed out 5692 ms",
        NETWORK_CARD,
    ),
    Message(
        "22907996090",
        "virtio_net virtio0 eth0: NETDEV WATCHDOG: CPU: 1: transmit queue 0 timed out 5500 ms",
        NETWORK_CARD,
    ),
    Message("29983804671", "NETDEV WATCHDOG: lc5 (tg3): transmit queue 0 timed out", NETWORK_CARD),
    Message("56877390211", "ice 0000:85:00.0 irdma0: HMC Error", NETWORK_CARD),
    Message("40301166849", "hns3 0000:39:01.0: hclge device re-init failed, VF is disabled!", NETWORK_CARD),
    Message("40301166849 (2)", "hns3 0000:39:01.0: failed to reset VF stack", NETWORK_CARD),
    Message("9508550430", "hns3 0000:7d:00.0: Invalid request local work queue 0x9 error."),
    Message("30426963407", "bnxt_en 0000:21:00.1 ens2f1np1: hwrm req_type 0x53 seq id 0x6fca error 0x2"),
    Message("754105609", "bnxt_en 0000:19:00.0: QPLIB: cmdq[0x4b9]=0x15 status 0x5"),
    Message("8218337506", "bnxt_en 0000:3b:00.0 p1p1: Firmware reset request successful."),
    Message(
        f"{GITHUB}/leptonai/gpud/issues/1164",
        "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 268269): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5), syndrome (0x305684), err(-22)",
    ),
    # -- disks
    Message("53692015934", "nvme nvme0: Disabling device after reset failure: -19", DISK),
    Message("68936711923", "EXT4-fs (nvme0n1p2): I/O error while writing superblock", DISK),
    Message("12968560717", "md/raid:md0: Disk failure on nvme1n1, disabling device.", DISK),
    Message("43299133607", "md/raid1:md0: Disk failure on nvme2n1, disabling device.", DISK),
    Message(
        "gpud, disk/kmsg_matcher.go",
        "Buffer I/O error on dev dm-0, logical block 1308098575, lost async page write",
        DISK,
    ),
    Message("68936711923 (2)", "nvme nvme0: Does your device have a faulty power saving mode enabled?"),
    # -- Arm: processor and memory, reported by the firmware (APEI) or by the kernel itself
    Message("21614937012", "{1}[Hardware Error]: event severity: recoverable", HARDWARE),
    Message("21614937012 (2)", "{1}[Hardware Error]:   section_type: ARM processor error"),
    Message("21614937012 (3)", "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 9"),
    Message("31129117441", "Memory failure: 0x208900: recovery action for reserved kernel page: Ignored", HARDWARE),
    Message("31129117441 (2)", "Memory failure: 0x208900: reserved kernel page still referenced by 1 users"),
    Message("37756592836", "Memory failure: 0x102f01: recovery action for huge page: Recovered", HARDWARE),
    Message("15498489913", "SError Interrupt on CPU5, code 0xbf000002 -- SError", HARDWARE),
    Message("41353227853", "SError Interrupt on CPU3, code 0x00000000bf000002 -- SError", HARDWARE),
    Message("8230592943", "Internal error: synchronous external abort: 96000010 [#1] PREEMPT SMP", HARDWARE),
    Message("69188068828", "EDAC MC0: 1 Corrected error"),
    # leptonai/gpud, components/memory/testdata/dmesg.decode.iso.log: the form of kernel 2.6.32, and what is no fault
    Message("gpud, dmesg.decode.iso.log", "Out of memory: Killed process 123, UID 48, (httpd)", MEMORY),
    Message("gpud, dmesg.decode.iso.log (2)", "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),"),
    Message(
        "gpud, dmesg.decode.iso.log (3)",
        "NVRM: Xid (PCI:0000:38:00): 43, pid=2924364, name=pt_main_thread, Ch 00000008",
    ),
    # the same, pkg/pstore/testdata/7530486857247/dmesg.txt
    Message("gpud, pstore", "ata3: SATA link down (SStatus 0 SControl 300)"),
    Message("gpud, pstore (2)", "mlx5_core 0000:41:00.1: Port module event: module 1, Cable unplugged"),
    # Searched for later: mailing lists of the kernel, forums, issues.
    Message("56962331694", "NVRM: GPU at 0000:01:00.0 has fallen off the bus.", GPU),
    Message("58445861939", "NVRM: Xid (PCI:0000:01:00): 79, pid=8828, GPU has fallen off the bus.", GPU),
    Message("56800496124", "NVRM: Xid (PCI:0000:01:00): 62, 12b2(1fa0) 00000000 00000000", GPU),
    Message("57011299466, Xid", "NVRM: Xid (PCI:0000:01:00): 62, pid=2763, 0c83(1870) 00000000 00000000", GPU),
    Message("57011299466, adapter", "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x1a:1227)", GPU),
    Message("56811020486", "NVRM: Xid (PCI:0000:01:00): 16, Head 00000000 Count 0000088a"),
    Message(
        "58402094683",
        "NVRM: Xid (PCI:0000:61:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)",
        GPU,
    ),
    Message(
        "60246056282",
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        GPU,
    ),
    Message(
        "18570234798, port", "pcieport 0000:00:01.3: AER: Multiple Corrected error message received from 0000:03:00.0"
    ),
    Message(
        "18570234798, device",
        "pci 0000:03:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    ),
    Message(
        "36051204577, port",
        "pcieport 0000:00:1c.0: AER: Uncorrectable (Fatal) error message received from 0000:01:00.0",
        HARDWARE,
    ),
    Message(
        "36051204577, device",
        "ath10k_pci 0000:01:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)",
        HARDWARE,
    ),
    Message("7672745088", "pcieport 0000:00:00.0:   device [10ee:d011] error status/mask=00000001/0000e000"),
    Message(
        "2801539781",
        "mlx5_core 0000:08:00.0: cq_err_event_notifier:529:(pid 9422): CQ error on CQN 0x406, syndrome 0x1",
    ),
    Message("30347093545", "INFO: task kworker/13:2:4055883 blocked for more than 120 seconds.", HUNG),
    Message(
        "37610279317",
        "stress-ng-vm invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=1000",
    ),
    Message("24795443404", "nvme nvme0: I/O 642 (I/O Cmd) QID 1 timeout, aborting"),
    Message("754021505", "nvme nvme0: Removing after probe failure status: -19", DISK),
    Message("41408988369", "NETDEV WATCHDOG: eth2 (igb): transmit queue 4 timed out", NETWORK_CARD),
    Message("6959440014", "NETDEV WATCHDOG: eth0 (stmmaceth): transmit queue 0 timed out", NETWORK_CARD),
    Message(
        "42108819169, UE", "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (xxx xxx)", HARDWARE
    ),
    Message("42108819169, CE", "EDAC MC0: 2 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (xxx xxx)"),
    Message("42108819169, page", "Memory failure: 0x7740c0: recovery action for dirty page: Recovered", HARDWARE),
    Message(
        "30495985286",
        "EDAC MC0: 1 UE Multi-bit ECC on unknown memory (node:0 card:1 module:71 bank:7 row:0 col:0 page:0x1000093 offset:0xc00 grain:1 - APEI location: node:0 card:257 module:71 bank:7 row:0 col:0)",
        HARDWARE,
    ),
    Message("30992793571, access", "mce: Uncorrected hardware memory error in user-access at af34214200", HARDWARE),
    Message("30992793571, severity", "{1}[Hardware Error]: event severity: corrected"),
    Message(
        "30992793571, page", "Memory failure: 0xaf34214: recovery action for reserved kernel page: Failed", HARDWARE
    ),
    Message("47597674627", "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [insmod:458]", HUNG),
    Message("21088216927", "NMI watchdog: BUG: soft lockup - CPU#31 stuck for 23s! [kworker/u642:5:1720]", HUNG),
    Message("56972658190", "e1000e: enp0s31f6 NIC Link is Down", LINK),
    Message(
        f"{GITHUB}/NVIDIA/open-gpu-kernel-modules/issues/1230",
        "NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 812751949 heartbeat 1899482 heartbeatWithOffsetMs 812745879 diff 6070 timeout 5200",
        frozenset({"kernel-error-logged"}),
    ),
    # -- collected later than the rules were written; the judgement was written before the first run
    Message(
        f"{GITHUB}/radiasoft/devops/issues/134",
        "EDAC sbridge MC1: CPU 1: Machine Check Event: 0 Bank 11: 8c00004f000800c2",
    ),
    Message(
        f"{GITHUB}/radiasoft/devops/issues/134 (2)",
        "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0xee30a0 offset:0x0 grain:32 syndrome:0x0 -  area:DRAM err_code:0008:00c2 socket:1 ha:0 channel_mask:1 rank:0)",
    ),
    Message(
        f"{GITHUB}/illinois-scicomp/machine-shop-maintenance/issues/66",
        "EDAC MC1: 262 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x2031c14 offset:0x940 grain:32 syndrome:0x0 -  OVERFLOW area:DRAM err_code:0001:0091 socket:0 ha:0 channel_mask:2 rank:1)",
    ),
    Message(f"{GITHUB}/andikleen/mcelog/issues/74", "Memory failure: 0xe16677: already hardware poisoned", HARDWARE),
    Message(f"{GITHUB}/andikleen/mcelog/issues/74 (2)", "{1}[Hardware Error]: Error 0, type: recoverable"),
    Message(
        f"{GITHUB}/geerlingguy/raspberry-pi-pcie-devices/issues/64",
        "pcieport 0000:00:1d.0: AER: Multiple Corrected error received: id=00e8",
    ),
    Message(
        f"{GITHUB}/archfan/coreboot/issues/2",
        "pcieport 0000:00:1c.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
    ),
    Message(
        f"{GITHUB}/Dasharo/coreboot/pull/815",
        "pcieport 0000:00:1d.3: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
    ),
    Message(
        f"{GITHUB}/Dasharo/coreboot/pull/815 (2)",
        "pcieport 0000:00:1d.3: AER: Multiple Correctable error message received from 0000:06:00.0",
    ),
    Message(
        f"{GITHUB}/minisforum-docs/MS-02-Ultra/issues/10",
        "pcieport 0000:80:1b.4: AER: Uncorrectable (Non-Fatal) error message received from 0000:80:1b.4",
        HARDWARE,
    ),
    Message(
        f"{GITHUB}/minisforum-docs/MS-02-Ultra/issues/10 (2)",
        "pcieport 0000:80:1b.4: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, (Receiver ID)",
        HARDWARE,
    ),
    Message(
        f"{GITHUB}/minisforum-docs/MS-02-Ultra/issues/10 (3)",
        "pcieport 0000:80:1b.4: AER: Correctable error message received from 0000:80:1b.4",
    ),
    Message(
        f"{GITHUB}/minisforum-docs/MS-02-Ultra/issues/10 (4)",
        "pcieport 0000:80:1b.4: AER: device recovery failed",
        HARDWARE,
    ),
    Message(
        "30906286179",
        "NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        GPU,
    ),
    Message("30906286179 (2)", "NVRM: GPU 0000:91:00.0: GPU serial number is 1653723052734."),
    Message("30906286179 (3)", "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up", GPU),
    Message(
        "30906286179 (4)",
        "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Severity 1 Engine instance 60 Sub-engine instance 00",
    ),
    Message(
        "30906286179 (5)",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x10000000, 0x00000000, 0x10000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000}",
    ),
    Message(
        "62062352040",
        "nvidia-nvswitch0: SXid (PCI:0000:ca:00.0): 19077, Non-fatal, Link 20 Nvltlc Tx Lnk An1 Timeout Vc5",
    ),
    Message(
        "61920075278", "nvidia-nvswitch0: SXid (PCI:0000:ca:00.0): 28002, Non-fatal, Link 20 Therm Warn Deactivated"
    ),
    Message("56985729989", "NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000009 intr 00800000"),
    Message(
        "70099918034",
        "NVRM: Xid (PCI:0000:01:00): 32, pid=2096908, name=kf-phys-oracle, channel 0x00000007 intr1 00000004 HCE_DBG0 00000300 HCE_DBG1 0000118e",
    ),
    Message(
        f"{GITHUB}/NVIDIA/open-gpu-kernel-modules/issues/688",
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned from rmStatus @ kernel_ce_gv100.c:106",
        GPU,
    ),
    Message(
        f"{GITHUB}/pocopico/rp-ext/issues/129",
        "mlx5_core 0000:01:00.0: mlx5_load_one failed with error code -22",
        NETWORK_CARD,
    ),
    Message(
        f"{GITHUB}/pocopico/rp-ext/issues/129 (2)",
        "mlx5_core: probe of 0000:01:00.0 failed with error -22",
        NETWORK_CARD,
    ),
    Message(f"{GITHUB}/pocopico/rp-ext/issues/129 (3)", "mlx5_core 0000:01:00.0: firmware version: 14.32.1010"),
    Message(f"{GITHUB}/leptonai/gpud/pull/1209", "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE"),
    Message(
        f"{GITHUB}/Ysurac/openmptcprouter/issues/286",
        "e1000e 0000:00:19.0 eth0: Detected Hardware Unit Hang:",
        NETWORK_CARD,
    ),
    Message(
        f"{GITHUB}/immortalwrt/immortalwrt/issues/2175",
        "(NULL net_device): hw csum failure",
    ),
    Message("leptonai/gpud, components/os", "VFS: file-max limit 1000000 reached", TABLE),
    Message(
        "leptonai/gpud, components/memory",
        "oom_reaper: reaped process 345646 (vector), now anon-rss:0kB, file-rss:0kB, shmem-rss:0",
    ),
    Message(
        f"{GITHUB}/NVIDIA/NVSentinel/issues/1334", "mlx5_core 0000:03:00.0 eth0: TX timeout detected", NETWORK_CARD
    ),
    Message(
        f"{GITHUB}/NVIDIA/NVSentinel/issues/1334 (2)",
        "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [ksoftirqd/12:81]",
        HUNG,
    ),
    Message(
        f"{GITHUB}/mwrnd/innova2_flex_xcku15p_notes/issues/8",
        "mlx5_core 0000:03:00.0: mlx5_function_setup:1236:(pid 182): Firmware over 120000 MS in pre-initializing state, aborting",
        NETWORK_CARD,
    ),
    Message(
        f"{GITHUB}/mwrnd/innova2_flex_xcku15p_notes/issues/8 (2)",
        "mlx5_core 0000:03:00.0: init_one:1812:(pid 182): mlx5_load_one failed with error code -16",
        NETWORK_CARD,
    ),
    Message(
        f"{GITHUB}/mwrnd/innova2_flex_xcku15p_notes/issues/8 (3)",
        "mlx5_core: probe of 0000:03:00.0 failed with error -16",
        NETWORK_CARD,
    ),
    Message(
        f"{GITHUB}/enjoy-digital/litex_m2sdr/issues/156",
        "pcieport 0004:00:00.0: AER: Multiple Uncorrectable (Fatal) error message received from 0004:00:00.0",
        HARDWARE,
    ),
    Message(f"{GITHUB}/pytorch/pytorch/issues/8976", "docker0: port 1(vethde6db48) entered disabled state"),
    Message(f"{GITHUB}/pytorch/pytorch/issues/8976 (2)", "veth3a36688: renamed from eth0"),
)

LOGS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # The page, the lines, and what a report names: the device, "!" for an error.
    (
        f"{GITHUB}/ROCm/legacy-rocm-build/issues/2494",
        """\
amdgpu 0000:03:00.0: amdgpu: SMU: response:0xFFFFFFFF for index:47 param:0x00000000 message:Mode1Reset?
amdgpu 0000:03:00.0: amdgpu: GPU mode1 reset failed
amdgpu 0000:83:00.0: amdgpu: ASIC reset failed with error, -121 for drm dev, 0000:83:00.0
amdgpu 0000:83:00.0: amdgpu: GPU reset succeeded, trying to resume
amdgpu 0000:03:00.0: amdgpu: GPU reset succeeded, trying to resume
[drm:psp_resume [amdgpu]] *ERROR* PSP resume failed""",
        ("!0000:03:00.0", "!0000:03:00.0", "!0000:83:00.0"),
    ),
    (
        f"{GITHUB}/ROCm/legacy-rocm-build/issues/1886",
        """\
amdgpu 0000:e3:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!
amdgpu 0000:e3:00.0: amdgpu: GPU reset begin!
[drm] UVD VCPU state may lost due to RAS ERREVENT_ATHUB_INTERRUPT
amdgpu: [powerplay] Failed to set soft min gfxclk !
amdgpu: [powerplay] [PowerOffAsic] Failed to disable DPM!""",
        ("!0000:e3:00.0", "0000:e3:00.0"),
    ),
    (
        f"{GITHUB}/ROCm/legacy-rocm-build/issues/1886, as the driver ends a reset",
        """\
amdgpu 0000:e3:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!
[drm] UVD VCPU state may lost due to RAS ERREVENT_ATHUB_INTERRUPT
amdgpu 0000:e3:00.0: amdgpu: GPU reset(1) succeeded!""",
        (),
    ),
    (
        f"{GITHUB}/ROCm/legacy-rocm-build/issues/1584",
        """\
amdgpu: qcm fence wait loop timeout expired
amdgpu: The cp might be in an unrecoverable state due to an unsuccessful queues preemption
amdgpu: Failed to quiesce KFD
amdgpu 0000:03:00.0: amdgpu: GPU reset begin!
amdgpu 0000:03:00.0: amdgpu: MODE2 reset
amdgpu 0000:03:00.0: amdgpu: GPU reset succeeded, trying to resume""",
        ("0000:03:00.0",),
    ),
    (
        f"{GITHUB}/Requiem4Eternity/Appstream/issues/97",
        """\
[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring vce0 timeout, signaled seq=568, emitted seq=570
amdgpu 000d:31:00.0: GPU reset begin!
[drm:amdgpu_device_gpu_recover [amdgpu]] *ERROR* VRAM is lost!""",
        ("000d:31:00.0",),
    ),
    (
        f"{GITHUB}/PeterSuh-Q3/tinycore-redpill/issues/9",
        """\
mlx5_core 0000:03:00.0: enabling device (0000 -> 0002)
mlx5_core 0000:03:00.0: firmware version: 14.32.1010
mlx5_core 0000:03:00.0: handle_hca_cap failed
mlx5_core 0000:03:00.0: mlx5_load_one failed with error code -22
mlx5_core: probe of 0000:03:00.0 failed with error -22""",
        ("0000:03:00.0",),
    ),
    (
        f"{GITHUB}/NVIDIA/NVSentinel/issues/155",
        """\
NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\\x0aNVRM: fallen off the bus and is not responding to commands.
NVRM: The NVIDIA probe routine failed for 1 device(s).""",
        ("!0000:b3:00.0",),
    ),
)
"""Whole passages: one cause is one finding, and what ends it is the driver's last word."""
