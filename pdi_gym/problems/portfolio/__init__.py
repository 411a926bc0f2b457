"""Portfolios under risk budgets."""

from pdi_gym.problems.portfolio.problem import Portfolio

__all__ = ["Portfolio"]
