"""The problems that ship with pdi-gym; each accepts a user's own data."""

from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.problems.portfolio import Portfolio
from pdi_gym.problems.wireless import WirelessPower

__all__ = ["MixtureOfGaussians", "Portfolio", "WirelessPower"]
