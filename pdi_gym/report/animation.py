"""A still or an animation of one horizon played by an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from pdi_gym.agents import Agent
from pdi_gym.envs import make_env
from pdi_gym.files import whole_file, writable_folder
from pdi_gym.validation import check_int

KINDS = (".png", ".gif")
MOST_FRAMES = 50
FRAME_MILLISECONDS = 150
LAST_FRAME_MILLISECONDS = 2000


def play(
    env_id: str,
    agent: Agent,
    slots: int,
    instance: int = 0,
    seed: int = 0,
    frames: int = 1,
    env_kwargs: dict[str, Any] | None = None,
) -> list[np.ndarray]:
    """Pictures (h, w, 3) of `frames` moments of one horizon, evenly spaced; the last is its end."""
    check_int("slots", slots, 1), check_int("instance", instance, 0), check_int("frames", frames, 1)
    check_int("seed", seed, 0)
    make_env(env_id, dict(env_kwargs or {}))  # names the close matches of an unknown id
    env = gym.make(env_id, render_mode="rgb_array", horizon=slots, **(env_kwargs or {}))
    moments = set(np.linspace(0, slots, frames + 1).round().astype(int)[1:].tolist())
    agent.bind(env, seed)
    observation, _ = env.reset(seed=seed, options={"instance": instance})
    pictures: list[np.ndarray] = []
    for slot in range(1, slots + 1):
        action, _ = agent.predict(observation)
        observation, *_ = env.step(action)
        if slot in moments:
            pictures.append(np.asarray(env.render()))
    env.close()
    return pictures


def check_out(path: Path) -> Path:
    """Refuse, before any work, a file that will not be written."""
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"out must end in {' or '.join(KINDS)}, got {path.name!r}")
    writable_folder("out", path.parent)
    return path


def save(path: Path, pictures: list[np.ndarray]) -> None:
    """PNG of the last picture or GIF of all, written under a temporary name and renamed."""
    from PIL import Image

    images = [Image.fromarray(p) for p in pictures]
    with whole_file(path) as temporary:
        if path.suffix.lower() == ".png":
            images[-1].save(temporary, format="PNG")
        else:
            palette = images[-1].quantize(128)  # one palette for all frames: colours must not flicker
            still = [im.quantize(palette=palette, dither=Image.Dither.NONE) for im in images]
            pause = [FRAME_MILLISECONDS] * (len(still) - 1) + [LAST_FRAME_MILLISECONDS]
            still[0].save(
                temporary, format="GIF", save_all=True, append_images=still[1:], duration=pause, loop=0
            )


def render(
    env_id: str, agent: Agent, slots: int, out: Path, instance: int = 0, seed: int = 0, **env_kwargs: Any
) -> None:
    """Play `slots` slots and write out.png (how it ends) or out.gif (how it comes to that)."""
    check_out(out)
    frames = 1 if out.suffix.lower() == ".png" else min(check_int("slots", slots, 1), MOST_FRAMES)
    save(out, play(env_id, agent, slots, instance, seed, frames, env_kwargs))
