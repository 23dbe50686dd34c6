# ruff: noqa: E501 - messages are kept as they were printed
"""More messages of real kernels, from mailing lists, issues and logs that users published: what must be found, and where.

A source that begins with `EMULATED` names a driver's file: the message was written from its format, and no host printed it.

A number is the id of a public file in the index of GitHub texts that the tests' author read. Time, host name and the line
breaks of mails are taken off. recorded/kernel_messages.tsv has more, in the same terms: a check and the device that it names, or
"-" for no fault, or "silent" with the reason; its messages were judged before the table knew any of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

GPU, AMD, HARDWARE = "gpu-xid-logged", "amd-gpu-fault-logged", "hardware-error-logged"
CARD, DISK, SERVER = "network-card-failed", "file-system-failed", "file-server-silent-logged"


EMULATED = "emulated: "


class Report(NamedTuple):
    """One message of a fault."""

    source: str
    check: str
    device: str
    """What the finding must name."""
    text: str


SICK: tuple[Report, ...] = (
    Report(
        EMULATED + "fs/btrfs/messages.c",
        DISK,
        "on sdb1 failed",
        "BTRFS: error (device sdb1: state A) in btrfs_run_delayed_refs:2157: errno=-5 IO failure",
    ),
    Report(
        "anomixer/proxmox-vgpu-installer issue 29",
        GPU,
        "does not support the GPU",
        "NVRM: The NVIDIA Tesla P100-PCIE-16GB GPU installed in this system is",
    ),
    Report(
        "NVIDIA/open-gpu-kernel-modules issue 696",
        GPU,
        "does not support the GPU",
        "NVRM: installed in this system is not supported by open",
    ),
    Report(
        "NVIDIA/open-gpu-kernel-modules issue 1045",
        GPU,
        "",
        "NVRM: GPU0 nvCheckOkFailedNoLog: Check failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from _gpushareddataSendDataPollRpc(pGpu, polledDataMask)",
    ),
    Report(
        "NVIDIA/open-gpu-kernel-modules issue 1151",
        GPU,
        "0000:06:00",
        "NVRM: GPU 0000:06:00.0: GPU has fallen off the bus.",
    ),
    Report(
        "NVIDIA/open-gpu-kernel-modules issue 1151",
        GPU,
        "",
        "NVRM: nvCheckOkFailedNoLog: Check failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned from rpcSendMessage",
    ),
    Report("intel/ethernet-linux-ice issue 12", CARD, "0000:17:00.0", "ice 0000:17:00.0: HMC Error"),
    Report(
        "kubernetes/node-problem-detector pull 846",
        HARDWARE,
        "",
        "{3}[Hardware Error]: event severity: recoverable",
    ),
    Report(
        "tailscale/tailscale issue 20994",
        CARD,
        "0000:40:00.1",
        "bnxt_en 0000:40:00.1 eno12409np1: Fatal firmware reset event, data1: 0x201, data2: 0xda27, min wait 1300 ms, max wait 4200 ms",
    ),
    Report(
        "tailscale/tailscale issue 20994",
        CARD,
        "eno12399np0",
        "bnxt_en 0000:40:00.0 eno12399np0: NETDEV WATCHDOG: CPU: 64: transmit queue 17 timed out 5069 ms",
    ),
    Report(
        "tailscale/tailscale issue 20994",
        CARD,
        "0000:40:00.0",
        "bnxt_en 0000:40:00.0 eno12399np0: TX timeout detected, starting reset task!",
    ),
    Report(
        "ROCm/rocm-install-on-linux issue 615",
        AMD,
        "0000:83:00.0",
        "amdgpu 0000:83:00.0: amdgpu: Fatal error during GPU init",
    ),
    Report(
        "ROCm/legacy-rocm-build issue 3712", AMD, "0000:48:00.0", "amdgpu: probe of 0000:48:00.0 failed with error -12"
    ),
    Report(
        "ROCm/legacy-rocm-build issue 4021",
        AMD,
        "0000:68:00.0",
        "amdgpu 0000:68:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
    ),
    Report(
        "ROCm/legacy-rocm-build issue 2196",
        AMD,
        "0000:0d:00.0",
        "amdgpu 0000:0d:00.0: amdgpu: SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x00000012 SMN_C2PMSG_82:0x00000005",
    ),
    Report(
        "ROCm/legacy-rocm-build issue 2196",
        AMD,
        "",
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=613206, emitted seq=613208",
    ),
    Report(
        "NVIDIA/open-gpu-kernel-modules issue 446",
        GPU,
        "0000:61:00",
        "NVRM: Xid (PCI:0000:61:00): 119, pid=1346198, name=nvidia-smi, Timeout waiting for RPC from GSP! Expected function 103 (GSP_RM_ALLOC) (0x80 0x38).",
    ),
    Report("pcengines/apu2-documentation issue 174", CARD, "0000:02:00.0", "igb 0000:02:00.0 enp2s0: PCIe link lost"),
    Report(
        "PeterSuh-Q3/tinycore-redpill issue 9",
        CARD,
        "0000:03:00.0",
        "mlx5_core 0000:03:00.0: mlx5_load_one failed with error code -22",
    ),
    Report(
        "PeterSuh-Q3/tinycore-redpill issue 9",
        CARD,
        "0000:03:00.0",
        "mlx5_core: probe of 0000:03:00.0 failed with error -22",
    ),
    Report(
        "siderolabs/talos issue 8935", CARD, "0000:00:1f.6", "e1000e 0000:00:1f.6 eno1: Detected Hardware Unit Hang:"
    ),
    Report(
        "leptonai/gpud pull 1174",
        GPU,
        "0019:01:00",
        "NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    ),
    Report(
        "ROCm/ROCm issue 2642",
        HARDWARE,
        "0000:03:00.0",
        "amdgpu 0000:03:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0010 address=0x64a7f000 flags=0x0020]",
    ),
    Report(
        "10838609672",
        HARDWARE,
        "0000:23:00.0",
        "smartpqi 0000:23:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0000 address=0xffffffffffec0000 flags=0x0010]",
    ),
    Report(
        "40309279457",
        HARDWARE,
        "0000:28:00.0",
        "ahci 0000:28:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0035 address=0x7fffff00000 flags=0x0000]",
    ),
    Report(
        "37299821701",
        HARDWARE,
        "0a:00.0",
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=0a:00.0 domain=0x001d address=0x000000000637c000 flags=0x0000]",
    ),
    Report(
        "gnif/vendor-reset issue 81",
        HARDWARE,
        "0000:0b:00.0",
        "iommu ivhd0: AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=0000:0b:00.0 address=0x1002147e0]",
    ),
    Report(
        "4853796119",
        HARDWARE,
        "63:00.0",
        "iommu ivhd0: AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=63:00.0 address=0x42b5b01a0]",
    ),
    Report("gnif/vendor-reset issue 81", HARDWARE, "IOMMU", "AMD-Vi: Completion-Wait loop timed out"),
    Report(
        "Marvell-switching/sonic-marvell-binaries pull 84",
        HARDWARE,
        "06:00.0",
        "DMAR: [DMA Read] Request device [06:00.0] PASID ffffffff fault addr 1a5e12000 [fault reason 06] PTE Read access is not set",
    ),
    Report(
        "opencomputeproject/OpenNetworkLinux pull 897",
        HARDWARE,
        "00:12.0",
        "DMAR: [DMA Write] Request device [00:12.0] fault addr 0 [fault reason 05] PTE Write access is not set",
    ),
    Report(
        "tenstorrent/tt-umd issue 1814",
        HARDWARE,
        "03:00.0",
        "DMAR: [DMA Read NO_PASID] Request device [03:00.0] fault addr 0x100000 [fault reason 0x71] SM: Present bit in first-level paging entry is clear",
    ),
    Report("68834224589", HARDWARE, "", "DMAR: VT-d detected Invalidation Time-out Error: SID 0"),
    Report("59136164371", AMD, "0000:03:00.0", "amdgpu 0000:03:00.0: amdgpu: SMU: response:0xFFFFFFFF"),
    Report("62262787513", CARD, "0000:00:06.0", "efa 0000:00:06.0: Wait for completion (polling) timeout"),
    Report(
        "37098161358",
        CARD,
        "0000:60:00.0",
        "ice 0000:60:00.0: IRDMA hardware initialization FAILED init_state=4 status=-110",
    ),
    Report(
        "32263412632",
        SERVER,
        "MGC10.130.93.11@o2ib",
        "LustreError: 166-1: MGC10.130.93.11@o2ib: Connection to MGS (at 10.130.93.10@o2ib) was lost; in progress operations using this service will fail",
    ),
    Report(
        "60774895726",
        SERVER,
        "fs-abcd12345-OST0000",
        "Lustre: fs-abcd12345-OST0000-osc-XXXXX: Connection to fs-abcd12345-OST0000 (at 10.0.1.5@tcp) was lost; in progress operations using this service will wait for recovery to complete",
    ),
    Report(
        "32263412632",
        SERVER,
        "lustre-MDT0000",
        "Lustre: lustre-MDT0000-lwp-OST0018: Connection to lustre-MDT0000 (at 10.130.93.10@o2ib) was lost; in progress operations using this service will wait for recovery to complete",
    ),
    Report("14858089323", HARDWARE, "0000:89:02.0", "pcieport 0000:89:02.0: pciehp: Slot(400): Link Down"),
    Report("14858089323", HARDWARE, "0000:89:02.0", "pcieport 0000:89:02.0: pciehp: Slot(400): Card not present"),
    Report("66526813383", HARDWARE, "0000:00:01.1", "pcieport 0000:00:01.1: pciehp: Slot(0): Link Down"),
    Report("28276183609", HARDWARE, "0000:00:1c.0", "pcieport 0000:00:1c.0: pciehp: Slot(8): Link Down"),
    Report("38287850208", HARDWARE, "0000:06:01.0", "pcieport 0000:06:01.0: pciehp: Slot(1): Card not present"),
    Report("15390690155", HARDWARE, "0000:00:02.3", "pcieport 0000:00:02.3: pciehp: Slot(0): Link Down"),
    Report(
        "15599262995",
        HARDWARE,
        "0000:00:01.0",
        "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: id=0008",
    ),
    Report(
        "55372339382",
        HARDWARE,
        "0000:00:01.1",
        "pcieport 0000:00:01.1: AER: Uncorrected (Non-Fatal) error received: 0000:00:01.1",
    ),
    Report(
        "33611322074, before Linux 4.18",
        HARDWARE,
        "0000:00:03.2",
        "dpc 0000:00:03.2:pcie008: DPC containment event, status:0x1f01 source:0x0000",
    ),
    Report(
        "emulated: dpc.c (dpc_process_error)",
        HARDWARE,
        "0000:15:01.0",
        "pcieport 0000:15:01.0: DPC: containment event, status:0x1f01: unmasked uncorrectable error detected",
    ),
    Report(
        "45684942360",
        AMD,
        "0000:b1:00.0",
        "amdgpu 0000:b1:00.0: amdgpu: ASIC reset failed with error, -38 for drm dev, 0000:b1:00.0",
    ),
    Report("15987898229", AMD, "0000:01:00.0", "amdgpu 0000:01:00.0: amdgpu: GPU reset begin!"),
    Report("2983773479", AMD, "0000:63:00.0", "amdgpu 0000:63:00.0: amdgpu: GPU reset begin!"),
    Report("29067353295", AMD, "0000:05:00.0", "amdgpu 0000:05:00.0: amdgpu: GPU reset begin!"),
    Report("35111555686", AMD, "0000:0c:00.0", "amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!"),
    Report(
        "emulated: ras_aca.c (aca_report_ecc_info)",
        AMD,
        "0000:05:00.0",
        "amdgpu 0000:05:00.0: {7} socket: 0, die: 0, 1 new poison consumption detected in gfx block",
    ),
    Report(
        "emulated: ras_aca.c (aca_report_ecc_info)",
        AMD,
        "0000:05:00.0",
        "amdgpu 0000:05:00.0: {7} socket: 0, die: 0, 2 new uncorrectable hardware errors detected in umc block",
    ),
    Report(
        "57005352585",
        AMD,
        "0000:03:00.0",
        "amdgpu 0000:03:00.0: amdgpu: GPU reset end with ret = -62",
    ),
    Report(
        "6680309299",
        CARD,
        "0000:41:00.1",
        "mlx5_core 0000:41:00.1: temp_warn:170:(pid 0): High temperature on sensors with bit set 0 1",
    ),
    Report(
        "71034923377",
        CARD,
        "0000:61:00.0",
        "mlx5_core 0000:61:00.0: temp_warn:171:(pid 0): High temperature on sensors with bit set 0 8000000000000001",
    ),
    Report(
        "71034923377",
        CARD,
        "0000:61:00.0",
        "mlx5_core 0000:61:00.0: print_health_info:520:(pid 0): synd 0x10: High temperature",
    ),
    Report(
        "56547990496",
        CARD,
        "0000:03:00.0",
        "mlx5_core 0000:03:00.0: wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
    ),
    Report(
        "56547990496",
        CARD,
        "0000:41:00.0",
        "mlx5_core 0000:41:00.0: poll_health:852:(pid 0): device's health compromised - reached miss count",
    ),
    Report(
        "56547990496",
        CARD,
        "0000:41:00.0",
        "mlx5_core 0000:41:00.0: print_health_info:458:(pid 0): synd 0x8: unrecoverable hardware error",
    ),
    Report(
        "56547990496",
        CARD,
        "0000:01:00.0",
        "mlx5_core 0000:01:00.0: mlx5_pcie_event:326:(pid 165): Detected insufficient power on the PCIe slot (27W).",
    ),
    Report(
        "7275941103, of a card that was pulled out",
        CARD,
        "0000:bb:00.0",
        "mlx5_core 0000:bb:00.0: poll_health:1083:(pid 0): Fatal error 1 detected",
    ),
    Report("56547990496", CARD, "eth0", "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue timed out"),
    Report("21577686", CARD, "eth1", "NETDEV WATCHDOG: eth1: transmit timed out"),
    Report(
        "17877023742",
        DISK,
        "loop5",
        "EXT4-fs error (device loop5): ext4_get_first_dir_block:3538: inode #5174: comm fsstress: directory missing '.'",
    ),
    Report(
        "15717274576",
        DISK,
        "dm-2",
        "EXT4-fs error (device dm-2): ext4_lookup:1441: inode #1196093: comm rsync: deleted inode referenced: 1188710",
    ),
    Report(
        "66664860179",
        DISK,
        "nvme1n1",
        "EXT4-fs error (device nvme1n1): ext4_journal_check_start:83: Detected aborted journal",
    ),
    Report("66664860179", DISK, "nvme1n1", "EXT4-fs (nvme1n1): Remounting filesystem read-only"),
    Report(
        "24491151572",
        DISK,
        "bcache4",
        'XFS (bcache4): metadata I/O error in "xfs_trans_read_buf_map" at daddr 0x8804a66e8 len 8 error 74',
    ),
    Report(
        "16930672775",
        DISK,
        "zram0",
        "XFS (zram0): Corruption of in-memory data (0x8) detected at xfs_fs_reserve_ag_blocks+0x1e0/0x220 [xfs] (fs/xfs/xfs_fsops.c:587).  Shutting down filesystem.",
    ),
    Report("60516592073", DISK, "nvme0", "nvme nvme0: Device not ready; aborting reset, CSTS=0x1"),
    Report(
        "emulated: pci.c (nvme_timeout)",
        DISK,
        "nvme0",
        "nvme nvme0: I/O tag 12 (300c) opcode 0x2 (Read) QID 3 timeout, reset controller",
    ),
    Report("60416709061", DISK, "nvme0", "nvme nvme0: I/O 1 QID 0 timeout, reset controller"),
    Report(
        "25179931167",
        DISK,
        "sdc1",
        "BTRFS error (device sdc1): unable to fixup (regular) error at logical 7302091505664 on dev /dev/sdc1 physical 7166808424448",
    ),
    Report(
        "46758946858",
        DISK,
        "sdb1",
        "BTRFS error (device sdb1): parent transid verify failed on 12554992156672 wanted 130582 found 127355",
    ),
    Report(
        "42666803277",
        DISK,
        "sda3",
        "BTRFS critical (device sda3): corrupt leaf: block=4664769363968 slot=17 extent bytenr=4706905751552 len=8192 invalid extent refs, have 1 expect >= inline 12",
    ),
    Report("22963422598", DISK, "sdc", "BTRFS error (device sdc): failed to read devices"),
    Report(
        "32791484788",
        DISK,
        "sda2",
        "BTRFS critical (device sda2): corrupt leaf: root=294 block=1027628027904 slot=1 ino=915987, invalid inode generation",
    ),
    Report(
        "58479869362",
        GPU,
        "0000:23:00",
        "NVRM: Xid (PCI:0000:23:00): 120, GSP task exception: load access page fault (cause:0xd) @ pc:0x13636b2, partition:2#0, task:3, gfid: 0",
    ),
    Report(
        "4559669392",
        GPU,
        "0000:b9:00",
        "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    ),
    Report(
        "71508369305",
        GPU,
        "0000:01:00",
        "NVRM: Xid (PCI:0000:01:00): 109, name=IL2Series.exe, channel 0x00000028, errorString CTX SWITCH TIMEOUT, Info 0x1c022",
    ),
    Report(
        "26130688411",
        GPU,
        "0000:01:00",
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    ),
    Report(
        "68292213421",
        GPU,
        "0000:d4:00",
        "NVRM: Xid (PCI:0000:d4:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    ),
    Report(
        "NVIDIA/open-gpu-kernel-modules issue 942",
        GPU,
        "0000:01:00",
        "NVRM: Xid (PCI:0000:01:00): 62, 322bff9a 0000b3b8 00000000 206a4b08 206a3cc8 206a3e36 206a2284 206a2ad6",
    ),
    Report("26870871926", SERVER, "spot", "nfs: server spot not responding, still trying"),
    Report("21577686", SERVER, "486Linux", "nfs: server 486Linux not responding, still trying"),
    Report("70275282262", SERVER, "192.168.0.252", "nfs: server 192.168.0.252 not responding, timed out"),
    Report(
        "20305589314", SERVER, "hermine.idb.hist.no", "nfs: server hermine.idb.hist.no not responding, still trying"
    ),
    Report(
        "28801236788",
        SERVER,
        "nfsserver.in.my.domain",
        "nfs: server nfsserver.in.my.domain not responding, still trying",
    ),
    Report("65860584077", AMD, "0000:7c:00.0", "amdgpu 0000:7c:00.0: SMU: No response msg_reg: 17 resp_reg: 0"),
    Report("65860584077", AMD, "0000:7c:00.0", "amdgpu 0000:7c:00.0: Mode2 reset failed!"),
    Report("65860584077", AMD, "0000:7c:00.0", "amdgpu 0000:7c:00.0: GPU mode2 reset failed"),
    Report(
        "65860584077",
        AMD,
        "0000:7c:00.0",
        "amdgpu 0000:7c:00.0: ASIC reset failed with error, -62 for drm dev, 0000:7c:00.0",
    ),
    Report("65860584077", AMD, "0000:7c:00.0", "amdgpu 0000:7c:00.0: GPU reset end with ret = -62"),
    Report("65860584077", AMD, "0000:7c:00.0", "amdgpu 0000:7c:00.0: GPU Recovery Failed: -62"),
    Report(
        "65860584077",
        AMD,
        "0000:7c:00.0",
        "amdgpu 0000:7c:00.0: ring gfx_0.0.0 timeout, signaled seq=900247, emitted seq=900247",
    ),
    Report("57005352585", AMD, "", "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* GPU Recovery Failed: -62"),
    Report("56762349303", AMD, "0000:03:00.0", "amdgpu 0000:03:00.0: resume of IP block <smu> failed -62"),
    Report("56762349303", AMD, "0000:03:00.0", "amdgpu 0000:03:00.0: amdgpu_device_ip_resume failed (-62)."),
    Report("ROCm/ROCm issue 5665", AMD, "", "amdgpu: MES failed to respond to msg=REMOVE_QUEUE"),
    Report("45715828595", AMD, "0000:07:00.0", "amdgpu 0000:07:00.0: amdgpu: GPU reset(9) failed"),
    Report(
        "3784420793, on POWER",
        CARD,
        "400f:01:00.0",
        "mlx5_core 400f:01:00.0: poll_health:800:(pid 0): Fatal error 1 detected",
    ),
    Report(
        "40686343822",
        HARDWARE,
        "0000:89:02.0",
        "pcieport 0000:89:02.0: DPC: containment event, status:0x1f01 source:0x0000",
    ),
    Report(
        "7622277247, of a ConnectX-7",
        HARDWARE,
        "0004:00:00.0",
        "pcieport 0004:00:00.0: DPC: containment event, status:0x1f01 source:0x0000",
    ),
    Report(
        "62576800846",
        HARDWARE,
        "0002:21:00.0",
        "arm-smmu-v3 fc900000.iommu: event: F_TRANSLATION client: 0002:21:00.0 sid: 0x2100 ssid: 0x0 iova: 0x0 ipa: 0x0",
    ),
    Report(
        "45532776534",
        HARDWARE,
        "0001:06:00.0",
        "arm-smmu-v3 arm-smmu-v3.5.auto: event: F_TRANSLATION client: 0001:06:00.0 sid: 0x20600 ssid: 0x0 iova: 0xff9bc000 ipa: 0x0",
    ),
    Report("7483829662", DISK, "sda", "XFS (sda): log I/O error -5"),
    Report("874600837", DISK, "nvme4", "nvme nvme4: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10"),
    Report(
        "47663483917",
        HARDWARE,
        "",
        "MCE: Killing einj_mem_uc:3600 due to hardware memory corruption fault at 7f3309503400",
    ),
    Report("42108819169", HARDWARE, "", "Memory failure: 0x7740c0: recovery action for dirty page: Recovered"),
    Report(
        "10023738201",
        HARDWARE,
        "",
        "EDAC MC0: 1 UE unknown on unknown memory ( page:0x116c60 offset:0x0 grain:1 - APEI location: )",
    ),
    Report(
        "30495985286",
        HARDWARE,
        "",
        "EDAC MC0: 1 UE Multi-bit ECC on unknown memory (node:0 card:1 module:71 bank:7 row:0 col:0 page:0x1000093 offset:0xc00 grain:1 - APEI location: node:0)",
    ),
    Report("31060623980", HARDWARE, "", "mce: Uncorrected hardware memory error in user-access at af34214200"),
    Report(
        "30906286179",
        GPU,
        "0000:06:00.0",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    ),
    Report("30906286179", GPU, "on 0000:91:00.0,", "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus."),
    Report(
        "30820515515",
        GPU,
        "0008:01:00",
        "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    ),
    Report("12994304955", AMD, "0000:0c:00.0", "amdgpu 0000:0c:00.0: amdgpu: Failed to export SMU metrics table!"),
    Report(
        "7275941103",
        CARD,
        "0000:bb:00.0",
        "mlx5_core 0000:bb:00.0: print_health_info:491:(pid 0): PCI slot is unavailable",
    ),
)

SILENT: tuple[tuple[str, str, str], ...] = (
    (
        "3784420793",
        "EEH: Recovering PHB#400f-PE#10000",
        "of POWER, whose hosts no accelerator here has; the driver of the device says more and is found",
    ),
    (
        "7483829662",
        "sd 0:0:0:0: rejecting I/O to offline device",
        "a stick that is pulled out does so as well; a file system on it says itself that it failed, and is found",
    ),
    (
        "51836793350",
        "nvme nvme1: I/O 320 QID 4 timeout, aborting",
        "the first step for one command; a disk that stays silent has its controller reset, which is found",
    ),
)
"""Lines of faults that stay silent: source, text, and why."""

HEALTHY: tuple[tuple[str, str], ...] = (
    (
        EMULATED
        + "src/sdk_driver/svm/v2/master/pmaster/devmm_proc_mem_copy.c of github.com/hicann/driver, of a program",
        "[ascend] [ERROR] [devmm] [devmm_ioctl_sync_copy_proc 2829] <python:4321,4321> Dma copy failed. (ret=-22)",
    ),
    (EMULATED + "drivers/ras/cec.c", "RAS: Correctable Errors collector initialized."),
    (
        EMULATED + "drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c",
        "amdgpu 0000:8a:00.0: amdgpu: socket: 3, die: 1 0 uncorrectable hardware errors detected in total in gfx block",
    ),
    (
        "70941271657",
        "iommu ivhd1: AMD-Vi: Event logged [INVALID_DEVICE_REQUEST device=0000:00:00.0 pasid=0x00000 address=0xfffffffdf8000000 flags=0x0a00]",
    ),
    (
        "57098913801",
        "iommu ivhd0: AMD-Vi: Event logged [INVALID_DEVICE_REQUEST device=12:00.1 pasid=0x00000 address=0xfffffffdf8000000 flags=0x0a00]",
    ),
    (
        "5254745025, who writes that it is to be ignored",
        "iommu ivhd0: AMD-Vi: Event logged [INVALID_DEVICE_REQUEST device=00:00.0 pasid=0x00000 address=0xfffffffdf8000000 flags=0x0a00]",
    ),
    ("65860584077", "amdgpu 0000:7c:00.0: MODE2 reset"),
    ("31060623980", "{1}[Hardware Error]: It has been corrected by h/w and requires no further action"),
    ("31060623980", "{1}[Hardware Error]: event severity: corrected"),
    ("47663483917", "mce: [Hardware Error]: Machine check events logged"),
    ("10023738201", "[Firmware Warn]: GHES: Invalid error status block length!"),
    ("61978181695", "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20009, Non-fatal, Link 04 RX Short Error Rate"),
    (
        "30365545514",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
    ),
    (
        "30448609237",
        "NVRM: Xid (PCI:0008:01:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)",
    ),
    ("12313053861", "nvme nvme0: 8/0/0 default/read/poll queues"),
    ("56855437898", "CPU1: Core temperature/speed normal"),
    ("30906286179", "NVRM: GPU 0000:91:00.0: GPU serial number is 1653723052734."),
    ("65860584077", "amdgpu 0000:7c:00.0: Dumping IP State Completed"),
    ("57005352585", "snd_hda_intel 0000:03:00.1: CORB reset timeout#2, CORBRP = 65535"),
    ("57005352585", "[drm:amdgpu_cs_ioctl [amdgpu]] *ERROR* Failed to initialize parser -125!"),
    (
        "56762349303",
        "mt7921e 0000:0a:00.0: Direct firmware load for mediatek/WIFI_RAM_CODE_MT7902_1.bin failed with error -2",
    ),
    ("3071893889", "pcieport 0000:00:00.0: AER: Corrected error received: 0000:01:00.0"),
    ("10618165592", "amd_pmc: Last suspend didn't reach deepest state"),
    ("57953268849", "amdgpu 0000:c3:00.0: amdgpu: no uncorrectable hardware errors detected in umc block"),
    (
        "48132207704",
        "efa 0000:a0:1a.0 rdmap160s26: Failed to process command DEREG_MR (opcode 8) comp_status 7 err -22",
    ),
    ("9234894901", "hns3 0000:7d:00.0 hns_0: check SQ size error!"),
    ("42277580399", "hns3 0000:35:00.0: INT status: CMDQ(0x0) HW errors(0x0) other(0x0)"),
    ("30426963407", "bnxt_en 0000:21:00.1 ens2f1np1: hwrm req_type 0x53 seq id 0x6fca error 0x2"),
    (
        "43585376770",
        "mlx5_core 0000:08:00.0: mlx5_cmd_check:777:(pid 102063): SET_FLOW_TABLE_ENTRY(0x936) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x8708c3)",
    ),
    ("11543621433", "pcieport 0000:a9:10.0: pciehp: Slot(272): Link Down/Up ignored (recovered by DPC)"),
    ("11543621433", "pcieport 0000:a9:10.0: AER: broadcast slot_reset message"),
    ("11543621433", "nvme nvme0: restart after slot reset"),
    ("11543621433", "pcieport 0000:a9:10.0: pciehp: pciehp_check_link_active: lnk_status = 2044"),
    ("8861996463", "pcieport 0000:00:03.1: pciehp: Slot(0-1): Card present"),
    ("8861996463", "pcieport 0000:00:03.1: pciehp: Slot(0-1): Link Up"),
    ("43651752559", "pcieport 0020:02:02.0: pciehp: Slot(0-3): Card present"),
    ("908188188", "pcieport 0000:00:04.1: pciehp: Slot(0): Link Up"),
    ("25907945028", "pcieport 0003:00:00.0: pciehp: Slot(31): Attention button pressed"),
    ("25907945028", "pcieport 0003:00:00.0: pciehp: pending interrupts 0x0001 from Slot Status"),
    ("69435536344", "pcieport 0000:00:1c.0: AER: Multiple Correctable error message received"),
    ("31136895212", "pcieport 0000:00:1d.4: AER: Corrected error received: 0000:00:1d.4"),
    ("34889487424", "pcieport 0000:00:1c.5: AER: enabled with IRQ 172"),
    ("34889487424", "pcieport 0000:00:1c.5: DPC: enabled with IRQ 172"),
    ("38714199650", "pcieport 0000:00:00.0: PME: Signaling with IRQ 92"),
    ("38714199650", "pcieport 0000:00:00.0: enabling device (0000 -> 0002)"),
    ("45684942360", "amdgpu 0000:b1:00.0: amdgpu: GPU reset succeeded, trying to resume"),
    ("23361965114", "amdgpu 0000:0c:00.0: amdgpu: GPU reset succeeded, trying to resume"),
    ("29067353295", "amdgpu 0000:05:00.0: amdgpu: recover vram bo from shadow start"),
    ("48138921451", "amdgpu 0000:03:00.0: amdgpu: Using BOCO for runtime pm"),
    ("2035790462", "amdgpu 0000:01:00.0: enabling device (0540 -> 0542)"),
    ("10621883656", "amdgpu 0000:03:00.0: No more image in the PCI ROM"),
    ("10621883656", "amdgpu 0000:03:00.0: amdgpu: Fetched VBIOS from ROM BAR"),
    (
        "7797260071",
        "amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0 1 correctable hardware errors detected in total in gfx block, no user action is needed.",
    ),
    ("66682126576", "amdgpu 0000:01:00.0: iommu: 64-bit OK but direct DMA is limited by 0"),
    (
        "43585376770",
        "mlx5_core 0000:08:00.0: mlx5_cmd_check:777:(pid 102063): SET_FLOW_TABLE_ENTRY(0x936) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x8708c3)",
    ),
    (
        "26867790990",
        "mlx5_core 0000:08:00.0: mlx5_cmd_out_err:803:(pid 8833): SET_FLOW_TABLE_ENTRY(0x936) op_mod(0x0) failed, status bad resource state(0x9), syndrome (0xf2ff71), err(-22)",
    ),
    ("28708611397", "mlx5_core 0000:01:00.0: firmware version: 12.28.1002"),
    ("28708611397", "mlx5_core 0000:01:00.0: 126.016 Gb/s available PCIe bandwidth (8 GT/s x16 link)"),
    ("5432585813", "mlx5_core 0000:81:00.0: firmware version: 16.35.2000"),
    ("31072200325", "XFS (vda4): Starting recovery (logdev: internal)"),
    ("31072200325", "XFS (vda4): Ending recovery (logdev: internal)"),
    ("26068850981", "XFS (sdh): Mounting V5 Filesystem f93350d1-9b73-448c-bca2-b5b69343922f"),
    ("26068850981", "XFS (sdh): Ending clean mount"),
    ("6881081342", "XFS (dm-5): Mounting V4 Filesystem"),
    ("53838530669", "XFS (sda1): Unmounting Filesystem"),
    ("942144286", 'XFS (dm-2): mounting with "discard" option, but the device does not support discard'),
    ("7473936812", "SGI XFS with ACLs, security attributes, no debug enabled"),
    ("40640150037", "nvme nvme0: NVME-FC{0}: controller connect complete"),
    ("60516592073", "nvme nvme0: pci function 0000:02:00.0"),
    ("45793142646", "nvme nvme0: Shutdown timeout set to 8 seconds"),
    ("2053295469", "nvme 0000:04:00.0: platform quirk: setting simple suspend"),
    (
        "11161302568",
        "BTRFS error: device /dev/sdd belongs to fsid c6f83d24-1ac3-4417-bdd9-6249c899604d, and the fs is already mounted",
    ),
    ("14807340673", "BTRFS info (device bcache8): enabling auto defrag"),
    ("14807340673", "BTRFS info (device bcache8): force zstd compression, level 3"),
    ("41676530488", "Btrfs loaded, zoned=yes, fsverity=yes"),
    ("9069591868", "BTRFS info (device dm-2): trying to use backup root at mount time"),
    ("22797382137", "BTRFS info (device dm-9): disk space caching is enabled"),
    ("22797382137", "BTRFS: has skinny extents"),
    ("22797382137", "BTRFS: checking UUID tree"),
    (
        "NVIDIA/open-gpu-kernel-modules issue 942",
        "NVRM: Xid (PCI:0000:01:00): 45, pid=2171, name=xdg-desktop-por, channel 0x0000000a",
    ),
    (
        "NVIDIA/open-gpu-kernel-modules issue 942",
        "NVRM: GPU at PCI:0000:01:00: GPU-1139a0a3-3982-ae1d-ccd6-8538802f3bdc",
    ),
    (
        "NVIDIA/open-gpu-kernel-modules issue 1118",
        "nvidia-nvswitch1: SXid (PCI:0000:aa:00.0): 24007, Severity 1 Engine instance 12 Sub-engine instance 00",
    ),
    ("NVIDIA/open-gpu-kernel-modules issue 1118", "NVRM: GPU Board Serial Number: 1563521020414"),
    ("58479869362", "NVRM: kgspPrintGspBinBuildId_IMPL: GSP bin buildId: 4f09703c5c7d57baa527d6a189bb6d118bc60e49"),
    (
        "15027711529",
        "bnxt_en 0000:12:00.0 (unnamed net_device) (uninitialized): Device requests max timeout of 100 seconds, may trigger hung task watchdog",
    ),
    ("52715418754", "bnxt_en 0000:b4:00.0 ens192: NIC Link is Up, 10000 Mbps full duplex"),
    (
        "53905254115",
        "bnxt_en 0000:18:00.0 (unnamed net_device) (uninitialized): Firmware does not support TC flower offload.",
    ),
    ("32263412632", "Lustre: Skipped 1 previous similar message"),
    ("20305589314", "nfs: server hermine.idb.hist.no OK"),
    ("21577686", "eth1: link up, 10Mbps, half-duplex, lpa 0x0000"),
    ("hamadmarri/TT-CPU-Scheduler issue 23", "pci 0000:00:00.2: AMD-Vi: Found IOMMU cap 0x40"),
    (
        "hamadmarri/TT-CPU-Scheduler issue 23",
        "AMD-Vi: Extended features (0x58f77ef22294a5a, 0x0): PPR NX GT IA PC GA_vAPIC",
    ),
    ("hamadmarri/TT-CPU-Scheduler issue 23", "AMD-Vi: Interrupt remapping enabled"),
    (
        "emulated: drivers/iommu/amd/iommu.c, amd_iommu_int_thread",
        "AMD-Vi: IOMMU event log overflow",
    ),
    (
        "15839779667, of a guest's device",
        "vfio-pci 0000:04:10.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0037 address=0x7b657064 flags=0x0000]",
    ),
    (
        "42608124886, of USB",
        "xhci_hcd 0000:02:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0xff00ffffffefe000 flags=0x0000]",
    ),
    (
        "thesofproject/sof-test issue 744, of the processor's graphics at start",
        "DMAR: [DMA Read NO_PASID] Request device [0x00:0x02.0] fault addr 0x70ad5000 [fault reason 0x07] Next page table ptr is invalid",
    ),
    (
        "Dasharo/dasharo-issues issue 641, of the processor's graphics at start",
        "DMAR: [DMA Read NO_PASID] Request device [00:02.0] fault addr 0x7cd80000 [fault reason 0x01] Present bit in root entry is clear",
    ),
    ("Dasharo/dasharo-issues issue 641", "DMAR: DRHD: handling fault status reg 3"),
    ("intel/intel-device-plugins-for-kubernetes issue 1836", "DMAR: IOMMU enabled"),
    (
        "intel/intel-device-plugins-for-kubernetes issue 1836",
        "ACPI: DMAR 0x00000000773D0000 000468 (v01 INTEL  INTEL ID 00000001 INTL 20091013)",
    ),
    ("ROCm/rocm-install-on-linux issue 615", "amdgpu 0000:83:00.0: enabling device (0000 -> 0002)"),
    (
        "ROCm/rocm-install-on-linux issue 615",
        "amdgpu 0000:83:00.0: amdgpu: initializing kernel modesetting (ALDEBARAN 0x1002:0x740F 0x1002:0x0C34 0x02).",
    ),
    ("ROCm/legacy-rocm-build issue 3712", "amdgpu: Virtual CRAT table created for CPU"),
    ("ROCm/legacy-rocm-build issue 3712", "amdgpu: PeerDirect support was initialized successfully"),
    (
        "ROCm/legacy-rocm-build issue 4533",
        "amdgpu 0000:43:00.0: amdgpu: Trusted Memory Zone (TMZ) feature not supported",
    ),
    ("ROCm/legacy-rocm-build issue 4533", "amdgpu 0000:43:00.0: amdgpu: Fetched VBIOS from platform"),
    (
        "ROCm/legacy-rocm-build issue 2927",
        "amdkcl: Warning: fail to get symbol __cancel_work, replace it with kcl stub",
    ),
    (
        "ROCm/legacy-rocm-build issue 4454",
        "mlx5_core 0000:9e:00.0: is_dpll_supported:213:(pid 1313): Missing SyncE capability",
    ),
    (
        "ROCm/legacy-rocm-build issue 4454",
        "mlx5_core 0000:9e:00.0: MLX5E: StrdRq(1) RqSz(8) StrdSz(2048) RxCqeCmprss(0 enhanced)",
    ),
    ("ROCm/legacy-rocm-build issue 4454", "mlx5_core 0000:9e:00.0 enp158s0np0: renamed from eth0"),
    (
        "PeterSuh-Q3/tinycore-redpill issue 9",
        "mlx5_core 0000:03:00.0: 0000:03:00.0:handle_hca_cap:438:(pid 6016): log_max_qp value in current profile is 18, changing it to HCA capability limit (17)",
    ),
    (
        "NVIDIA/open-gpu-kernel-modules issue 1230",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build  (root@epyc)  Fri Jul  3 11:27:00 AM UTC 2026",
    ),
    (
        "NVIDIA/open-gpu-kernel-modules issue 1230",
        "workqueue: drm_fb_helper_damage_work hogged CPU for >10000us 8 times, consider switching to WQ_UNBOUND",
    ),
    (
        "leptonai/gpud pull 1174",
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
    ),
    (
        "leptonai/gpud pull 46",
        "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter",
    ),
    ("ROCm/legacy-rocm-build issue 2935", "iwlwifi 0000:04:00.0: Error sending STATISTICS_CMD: time out after 2000ms."),
    ("lamikr/rocm_sdk_builder issue 141", "amdgpu 0000:c3:00.0: amdgpu: no vmid pasid mapping supported"),
    ("lamikr/rocm_sdk_builder issue 141", "amdgpu 0000:c3:00.0: amdgpu: SMU is resumed successfully!"),
    ("ROCm/legacy-rocm-build issue 2927", "perf/amd_iommu: Detected AMD IOMMU #0 (2 banks, 4 counters/bank)."),
    ("Mellanox/mstflint issue 448", "pci 0000:04:00.0: BAR 7: no space for [mem size 0x01000000 64bit pref]"),
    (
        "emulated: broadcom/bnxt, bnxt_async_event_process, of an update of the firmware",
        "bnxt_en 0000:40:00.1 eno12409np1: Non-fatal firmware reset event, data1: 0x1, data2: 0x0, min wait 1300 ms, max wait 4200 ms",
    ),
)

_RECORDED = [
    line.split("\t")
    for line in Path(__file__).with_name("recorded").joinpath("kernel_messages.tsv").read_text().splitlines()[1:]
]
SICK += tuple(
    Report(source, check, device, text) for source, check, device, text in _RECORDED if check not in ("-", "silent")
)
HEALTHY += tuple((source, text) for source, check, _, text in _RECORDED if check == "-")
SILENT += tuple((source, text, reason) for source, check, reason, text in _RECORDED if check == "silent")

LEVELS = {
    text: int(level)
    for level, _, text in (
        line.split("\t")
        for line in Path(__file__).with_name("recorded").joinpath("kernel_levels.tsv").read_text().splitlines()[1:]
    )
}
"""Of linux/kern_levels.h, of messages that the named file prints below error level, at which the kernel keeps them; all
others are judged as errors."""
