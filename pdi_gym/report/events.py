"""TensorBoard events of a comparison: one run per agent over its instances, and one to compare them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pdi_gym import drawing
from pdi_gym.event_files import event_writer
from pdi_gym.labels import code_span, in_figure, printable
from pdi_gym.metrics import columns, metric
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.problems.wireless import WirelessPower
from pdi_gym.report.tables import Running, command, markdown_table, mean_std
from pdi_gym.store import Row, Store, slug

MOST_SLOTS = 250
"""Points of a curve over slots: a longer horizon is thinned evenly."""

_SLOTS = {
    "violation": "mean violation of the average so far",
    "feasible": "share of constraints met by the average so far",
    "objective": "average objective so far",
}
_SAMPLER = {
    "violation": "mean violation of a step",
    "largest_residual": "largest residual of a step",
    "mean_dual": "mean multiplier",
    "largest_dual": "largest multiplier",
    "ess": "effective sample size of the score",
}


def write_run(
    path: Path, store: Store, own: list[Row], running: Running, problem: Problem, hparams: Mapping[str, Any]
) -> None:
    """One agent's run: metrics over instances and, on the first, what happens inside.

    own are its rows in the store, running its averages over the slots of one horizon
    and problem the first instance.
    """
    policy, residuals = store.policy(own[0])
    with event_writer(path) as writer:
        _write_metrics(writer, store, own, hparams)
        _write_slots(writer, running)
        _write_sampler(writer, policy)
        title = f"{in_figure(own[0]['agent'])}, instance {own[0]['instance']}"
        _add_image(writer, "policy", drawing.to_array(portrait(problem, policy, residuals, title)))


def portrait(problem: Problem, policy: TimeSharingPolicy, residuals: np.ndarray, title: str) -> Any:
    """A figure of one policy: who is served, where it goes, or how far each constraint is met."""
    if isinstance(problem, WirelessPower) and problem.positions is not None:
        return drawing.network_map(problem, problem.r_min - residuals, title)
    if isinstance(problem, MixtureOfGaussians):
        return drawing.mixture_samples(problem, policy.actions, title)
    return drawing.residual_bars(residuals, problem, title)


def write_comparison(
    path: Path, rows: list[Row], hparams: Mapping[str, Mapping[str, Any]], pictures: Mapping[str, Path]
) -> None:
    """The run that puts agents beside each other: layout, table, pictures (PNG), and what HPARAMS lists."""
    from PIL import Image
    from tensorboard.plugins.hparams.summary_v2 import HParam, Metric, hparams_config_pb

    names = columns(rows)
    options = dict.fromkeys(name for values in hparams.values() for name in values)
    config = hparams_config_pb(
        [HParam(name) for name in options],
        [Metric(_tag("mean", c), display_name=printable(c)) for c in names],
    )
    with event_writer(path) as writer:
        writer.file_writer.add_summary(_layout_summary(names))
        writer.file_writer.add_summary(config)
        writer.add_text("comparison", f"{code_span(command())}\n\n{markdown_table(rows)}")
        for name, picture in pictures.items():
            with Image.open(picture) as image:
                _add_image(writer, name, np.asarray(image.convert("RGB")))


def layout(names: list[str]) -> Any:
    """Custom scalars: agents against each other over instances, over slots, along the sampler."""
    from tensorboard.plugins.custom_scalar import layout_pb2 as pb

    def category(title: str, charts: Mapping[str, str], closed: bool = False) -> Any:
        return pb.Category(
            title=title,
            closed=closed,
            chart=[
                pb.Chart(title=name, multiline=pb.MultilineChartContent(tag=[f"^{tag}$"]))
                for name, tag in charts.items()
            ],
        )

    judged = {name: f"metrics/{name}" for name in names if metric(name).direction}
    slots = {title: f"slots/{name}" for name, title in _SLOTS.items()}
    sampler = {title: f"sampler/{name}" for name, title in _SAMPLER.items()}
    return pb.Layout(
        category=[
            category("Comparison over the slots of one horizon", slots),
            category("Comparison over instances (set Smoothing to 0)", judged, closed=True),
            category("Along the sampler's steps", sampler, closed=True),
        ]
    )


def _layout_summary(names: list[str]) -> Any:
    """The layout as TensorBoard stores it; its own function for this needs TensorFlow."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.plugins.custom_scalar import metadata

    content = TensorProto(dtype="DT_STRING", string_val=[layout(names).SerializeToString()])
    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME)
    value = Summary.Value(
        tag=metadata.CONFIG_SUMMARY_TAG, tensor=content, metadata=SummaryMetadata(plugin_data=plugin)
    )
    return Summary(value=[value])


def run_hparams(store: Store, own: list[Row]) -> dict[str, Any]:
    """Agent, preset, instances, seed and options as the plain values that HPARAMS can show.

    It lists them by name and shows the first few: the prefix keeps what tells runs apart in front.
    """
    settings = store.settings(own[0])
    values = {
        "agent": own[0]["agent"],
        "preset": settings["preset"],
        "instances": len(own),
        **{name: settings[name] for name in ("n", "horizon", "trials", "seed")},
        **{f"setting/{name}": value for name, value in settings["options"].items()},
    }
    shown = {k: v if isinstance(v, bool | int | float) else printable(str(v)) for k, v in values.items()}
    return {k: v for k, v in shown.items() if values[k] is not None}


def _write_metrics(writer: Any, store: Store, own: list[Row], hparams: Mapping[str, Any]) -> None:
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    writer.file_writer.add_summary(hparams_pb(hparams, trial_id=slug(own[0]["agent"])))
    for name in columns(own):
        writer.add_scalar(_tag("mean", name), mean_std(own, name)[0], 0)
    for row in own:
        for name, value in (row["metrics"] | {"seconds": row["seconds"]}).items():
            writer.add_scalar(_tag("metrics", name), value, row["instance"])
        _, residuals = store.policy(row)
        writer.add_histogram("residuals", residuals, row["instance"])


def _tag(group: str, metric: str) -> str:
    return f"{group}/{printable(metric)}"


def _write_slots(writer: Any, running: Running) -> None:
    horizon = len(running.objective)
    for slot in np.unique(np.linspace(0, horizon - 1, min(horizon, MOST_SLOTS)).round().astype(int)):
        for name in _SLOTS:
            writer.add_scalar(f"slots/{name}", getattr(running, name)[slot], slot + 1)


def _write_sampler(writer: Any, policy: TimeSharingPolicy) -> None:
    trace = policy.info.get("trace")
    if trace is None:
        return
    curves = {
        "violation": np.maximum(trace["residuals"], 0).mean(-1),
        "largest_residual": trace["residuals"].max(-1),
        "mean_dual": trace["duals"].mean(-1),
        "largest_dual": trace["duals"].max(-1),
        "ess": trace["ess"],
    }
    for k, step in enumerate(trace["step"]):
        if trace["duals"].any():
            writer.add_histogram("duals", trace["duals"][k], step)
        for name, values in curves.items():
            if np.isfinite(values[k]):
                writer.add_scalar(f"sampler/{name}", values[k], step)


def _add_image(writer: Any, name: str, picture: np.ndarray) -> None:
    writer.add_image(f"figures/{name}", picture, dataformats="HWC")
