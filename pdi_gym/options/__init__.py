"""What can be set, per family of agents."""

from pdi_gym.options.descent import ColumnOptions, ExpertOptions, LangevinOptions, ProximalOptions
from pdi_gym.options.diffusion import (
    AdaptiveOptions,
    DenoisingOptions,
    DiffusionOptions,
    DualTrainingOptions,
    GuidanceOptions,
    LearnedOptions,
    NetworkOptions,
    ProjectionOptions,
    SupervisedOptions,
    TailOptions,
    check_device,
)

__all__ = [
    "AdaptiveOptions",
    "ColumnOptions",
    "DenoisingOptions",
    "DiffusionOptions",
    "DualTrainingOptions",
    "ExpertOptions",
    "GuidanceOptions",
    "LangevinOptions",
    "LearnedOptions",
    "NetworkOptions",
    "ProjectionOptions",
    "ProximalOptions",
    "SupervisedOptions",
    "TailOptions",
    "check_device",
]
