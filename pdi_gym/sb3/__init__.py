"""Stable-Baselines3, both ways: its algorithms on our environments, our agents in its tools."""

from pdi_gym.rl.graph import GraphExtractor, GraphObservation, GraphPolicy
from pdi_gym.rl.lagrangian import LagrangianVecReward
from pdi_gym.rl.vec_env import SB3VecEnv, make_sb3_vec
from pdi_gym.sb3.algorithm import AgentAlgorithm

__all__ = [
    "AgentAlgorithm",
    "GraphExtractor",
    "GraphObservation",
    "GraphPolicy",
    "LagrangianVecReward",
    "SB3VecEnv",
    "make_sb3_vec",
]
