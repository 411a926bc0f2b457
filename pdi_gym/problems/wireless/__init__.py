"""Power control in wireless networks."""

from pdi_gym.problems.wireless.problem import SPLITS, WirelessPower

__all__ = ["SPLITS", "WirelessPower"]
