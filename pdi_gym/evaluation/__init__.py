"""Judging time-sharing policies over ergodic horizons, and comparing the agents that make them."""

from __future__ import annotations

from pdi_gym.evaluation.comparison import compare, named_agent
from pdi_gym.evaluation.judging import averages, evaluate
from pdi_gym.store import Row, load_policy, slug

__all__ = ["Row", "averages", "compare", "evaluate", "load_policy", "named_agent", "slug"]
