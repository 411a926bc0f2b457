"""pdi-gym: Gymnasium environments with ergodic constraints and time-sharing agents."""

from pdi_gym._version import __version__
from pdi_gym.advice import PolicyWarning
from pdi_gym.envs import register
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem

__all__ = ["PolicyWarning", "Problem", "TimeSharingPolicy", "__version__"]

register()
