"""The training loop: score regression on whatever pairs a source gives, validated and resumable."""

from __future__ import annotations

import copy
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from pdi_gym.checkpoints import save_network, save_tensors
from pdi_gym.event_files import event_writer
from pdi_gym.files import remove_leftovers, write_text
from pdi_gym.networks import Denoiser
from pdi_gym.training.options import TrainingOptions
from pdi_gym.training.sources import Piece, Source
from pdi_gym.training.state import BANDS, STATE, check_tensors, read_state


class Stopped(KeyboardInterrupt):
    """Training was asked to stop and has saved its state."""


@dataclass
class Training:
    """A network, its running average and all that is needed to go on after a kill.

    `validate` maps the averaged network to figures; the one called "criterion", to be minimised,
    decides which weights are kept as the best.
    """

    network: Denoiser
    source: Source
    options: TrainingOptions
    validate: Callable[[Denoiser], dict[str, float]]
    out: Path
    device: str = "cpu"
    settings: dict[str, Any] = field(default_factory=dict)
    """What a resumed run must share with the one it continues; names at least the agent and problem."""
    started: float = field(default_factory=time.process_time)
    """When the training began, by the clock of the process."""

    def __post_init__(self) -> None:
        self.network.to(self.device)
        self.average = copy.deepcopy(self.network).eval().requires_grad_(False)
        self.best = copy.deepcopy(self.average)
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=self.options.rate, weight_decay=self.options.weight_decay
        )
        self.step, self.history = 0, list[dict[str, Any]]()
        self._losses: list[tuple[float, list[float | None]]] = []
        self._earlier = 0.0

    @property
    def seconds(self) -> float:
        """CPU seconds of the whole training: rollouts, gradients, validations and their references.

        Those before a stop are included, what was lost to a kill is not.
        """
        return self._earlier + time.process_time() - self.started

    def run(self, resume: bool = False, quiet: bool = False) -> Denoiser:
        """Train to the end and return the best weights.

        SIGINT and SIGTERM end it after the rollout or step under way, with the state saved; a second
        SIGINT at once.
        """
        if resume:
            self.restore()
        elif (self.out / STATE).exists():
            raise ValueError(
                f"{self.out} holds a training state: go on with resume, or choose another folder"
            )
        for folder in (self.out, self.out / "checkpoints"):
            remove_leftovers(folder)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with (
            Progress(*columns, disable=quiet, console=Console(quiet=quiet, soft_wrap=True)) as progress,
            self._events() as writer,
            stop_signals() as asked,
        ):
            bar = progress.add_task("training", total=self.options.steps, completed=self.step)
            while self.step < self.options.steps:
                for _ in self.source.prepare(self.step, self.average):
                    if self.step == 0:
                        left = len(self.source.todo or ())
                        progress.update(bar, description=f"{left} instances before the first step")
                    self._stop_if(asked)
                loss = self._gradient_step()
                self.step += 1
                if self.step % self.options.validate_every == 0 or self.step == self.options.steps:
                    self._record()
                    self.save()
                    self._write_events(writer, self.history[-1])
                    progress.console.print(_line(self.history[-1]), highlight=False)
                progress.update(bar, completed=self.step, description=f"loss {loss:.3f}")
                self._stop_if(asked)
        return self.best

    def _stop_if(self, asked: list[int]) -> None:
        if asked:
            self.save()
            raise Stopped(f"the state after step {self.step} is in {self.out}; go on with --resume")

    def _gradient_step(self) -> float:
        for group in self.optimiser.param_groups:
            group["lr"] = self.options.rate * self._schedule()
        self.optimiser.zero_grad()
        pieces = list(self.source.pieces(self.step))
        total, bands = 0.0, torch.zeros(2, BANDS)
        for piece in pieces:
            errors = self.source.losses(self.network, piece, self.device)
            torch.autograd.backward(errors.mean() / len(pieces))
            total += float(errors.detach().mean()) / len(pieces)
            bands += _by_band(errors.detach().cpu(), self._angle(piece))
        if not math.isfinite(total):
            raise FloatingPointError(
                f"{self.settings['agent']} on {self.settings['problem']}: the loss is not finite at step "
                f"{self.step}: lower rate"
            )
        nn.utils.clip_grad_norm_(self.network.parameters(), self.options.clip)
        self.optimiser.step()
        with torch.no_grad():
            decay = min(self.options.ema, (1 + self.step) / (10 + self.step))
            for mean, new in zip(self.average.parameters(), self.network.parameters(), strict=True):
                mean.lerp_(new, 1 - decay)
        self._losses.append((total, _known(bands[0] / bands[1])))
        return total

    def _schedule(self) -> float:
        warm = max(1, self.options.steps // 50)
        return (
            min(1.0, (self.step + 1) / warm) * 0.5 * (1 + math.cos(math.pi * self.step / self.options.steps))
        )

    def _angle(self, piece: Piece) -> Tensor:
        schedule = self.source.task.schedule
        return torch.atan2(schedule.sigma[piece.tau], schedule.alpha[piece.tau]).squeeze(1) * (2 / math.pi)

    def _record(self) -> None:
        figures = self.validate(self.average)
        for name, value in figures.items():
            if not math.isfinite(value):
                where = f"{self.settings['agent']} on {self.settings['problem']}"
                raise FloatingPointError(f"{where}: {name} is {value} in the validation at step {self.step}")
        losses = torch.tensor([loss for loss, _ in self._losses])
        bands = torch.tensor([[math.nan if b is None else b for b in band] for _, band in self._losses])
        row = {
            "step": self.step,
            "seconds": self.seconds,
            "loss": float(losses.mean()),
            "loss_by_noise": _known(bands.nanmean(0)),
            "validation": figures,
            **self.source.notes(),
        }
        if figures["criterion"] <= min(
            (r["validation"]["criterion"] for r in self.history), default=math.inf
        ):
            self.best.load_state_dict(self.average.state_dict())
        self.history.append(row)
        card = {k: self.settings[k] for k in ("agent", "problem")} | {
            "step": self.step,
            "validation": figures,
        }
        save_network(self.out / "checkpoints" / f"step-{self.step:06d}", self.average, card, half=True)
        self._losses.clear()

    def _write_events(self, writer: Any, row: dict[str, Any]) -> None:
        step = row["step"]
        writer.add_scalar("loss/all", row["loss"], step)
        for i, value in enumerate(row["loss_by_noise"]):
            if value is not None:
                writer.add_scalar(f"loss by noise/{i / BANDS:.2f} to {(i + 1) / BANDS:.2f}", value, step)
        for name, value in row["validation"].items():
            writer.add_scalar(f"validation/{name}", value, step)
        for name, value in self.source.notes().items():
            writer.add_scalar(f"source/{name}", value, step)
        if self.source.lam is not None:
            writer.add_histogram("multipliers", self.source.lam, step)
        from pdi_gym.training.curve import training_curve  # draws: Matplotlib takes a while to load

        writer.add_figure("validation", training_curve(self.history), step)

    @contextmanager
    def _events(self) -> Iterator[Any]:
        with event_writer(self.out / "tensorboard", purge_step=self.step + 1) as writer:
            yield writer

    # State on disk.

    def save(self) -> None:
        tensors = {"generator": self.source.task.generator.get_state()}
        for prefix, network in (("network", self.network), ("average", self.average), ("best", self.best)):
            tensors |= {f"{prefix}.{k}": v for k, v in network.state_dict().items()}
        for i, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{i}.{k}": v for k, v in state.items()}
        tensors |= {f"source.{k}": v for k, v in self.source.state().items()}
        metadata = {
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
            "losses": self._losses,
            "options": asdict(self.options),
            "settings": self.settings,
        }
        save_tensors(self.out / STATE, tensors, metadata)
        write_text(self.out / "history.json", json.dumps(self.history, indent=1) + "\n")

    def restore(self) -> None:
        path = self.out / STATE
        tensors, metadata = read_state(path)
        require(str(self.out), metadata["options"], asdict(self.options))
        require(str(self.out), metadata["settings"], self.settings)
        check_tensors(path, tensors, self.network, self.source, metadata["step"])
        self.step, self._earlier, self.history = metadata["step"], metadata["seconds"], metadata["history"]
        self._losses = [(a, b) for a, b in metadata["losses"]]
        self.source.task.generator.set_state(tensors["generator"])
        for prefix, network in (("network", self.network), ("average", self.average), ("best", self.best)):
            network.load_state_dict(_below(tensors, prefix))
        content = self.optimiser.state_dict()
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below(tensors, "optimiser").items():
            i, key = name.split(".")
            moments.setdefault(int(i), {})[key] = tensor
        self.optimiser.load_state_dict({"state": moments, "param_groups": content["param_groups"]})
        self.source.restore(_below(tensors, "source"))


def require(folder: str, stored: dict[str, Any], ours: dict[str, Any]) -> None:
    """Refuse to go on from a training with other settings; what an earlier version left out is unknown."""
    for name, value in ours.items():
        if stored.get(name, value) != value:
            raise ValueError(
                f"{folder} was trained with {name} = {stored[name]!r:.60}, not {value!r:.60}: give the same, "
                "or choose another folder"
            )


def _line(row: dict[str, Any]) -> str:
    figures = ", ".join(f"{k} {v:.4g}" for k, v in row["validation"].items())
    return f"step {row['step']}, {row['seconds']:.0f} s: loss {row['loss']:.3f}; {figures}"


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = prefix + "."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}


def _known(bands: Tensor) -> list[float | None]:
    """A band without pairs has no loss: None, since JSON knows no NaN."""
    return [None if math.isnan(value) else value for value in bands.tolist()]


def _by_band(errors: Tensor, angle: Tensor) -> Tensor:
    """(2, bands): sums of errors and counts by noise level."""
    band = (angle * BANDS).long().clamp(0, BANDS - 1)
    return torch.stack([torch.zeros(BANDS).index_add_(0, band, v) for v in (errors, torch.ones_like(errors))])


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """A list that SIGINT and SIGTERM append to, so that the step under way is finished first.

    A SIGINT after that interrupts at once.
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def note(number: int, _: Any) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt("The state is that of the last validation; go on with --resume")
        asked.append(number)

    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
