"""The events of the smoke run's ranks, host by host; one module a stage."""

from doctor.facts.smoke.binding import CpuBinding, RankBound, SmokeBinding
from doctor.facts.smoke.collectives import (
    CollectiveChecked,
    CollectiveTimes,
    CollectiveWrong,
    DtypeUnsupported,
    SmokeCollectives,
)
from doctor.facts.smoke.devices import DeviceMiscomputed, DeviceTimes, DeviceUntested, SmokeDevices
from doctor.facts.smoke.first_stages import (
    ConnectFailed,
    RankDevice,
    RankExited,
    RankFailed,
    RankJoined,
    SmokeStart,
    TorchImported,
)
from doctor.facts.smoke.further_stages import (
    LoaderResult,
    NativeResult,
    PaceTimes,
    PairTimes,
    SmokeLoader,
    SmokeNative,
    SmokePace,
    SmokePairs,
)
from doctor.facts.smoke.learning import LearnedParameters, LearningStep, SmokeLearning
from doctor.facts.smoke.training import (
    LayoutBegun,
    LayoutEnded,
    ReferenceBlocks,
    ReferenceRepeated,
    ReferenceRun,
    ReferenceUpdate,
    SmokeTraining,
    TrainingStep,
)

__all__ = [
    "CollectiveChecked",
    "CollectiveTimes",
    "CollectiveWrong",
    "ConnectFailed",
    "CpuBinding",
    "DeviceMiscomputed",
    "DeviceTimes",
    "DeviceUntested",
    "DtypeUnsupported",
    "LayoutBegun",
    "LayoutEnded",
    "LearnedParameters",
    "LearningStep",
    "LoaderResult",
    "NativeResult",
    "PaceTimes",
    "PairTimes",
    "RankBound",
    "RankDevice",
    "RankExited",
    "RankFailed",
    "RankJoined",
    "ReferenceBlocks",
    "ReferenceRepeated",
    "ReferenceRun",
    "ReferenceUpdate",
    "SmokeBinding",
    "SmokeCollectives",
    "SmokeDevices",
    "SmokeLearning",
    "SmokeLoader",
    "SmokeNative",
    "SmokePace",
    "SmokePairs",
    "SmokeStart",
    "SmokeTraining",
    "TorchImported",
    "TrainingStep",
]
