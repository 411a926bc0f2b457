"""Mixtures of Gaussians under linear constraints."""

from pdi_gym.problems.mixture.problem import MixtureOfGaussians

__all__ = ["MixtureOfGaussians"]
