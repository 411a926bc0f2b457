"""What TensorBoard is given, read back with TensorBoard's own reader."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.hparams.metadata import PLUGIN_NAME
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from pdi_gym import seeding
from pdi_gym.agents import make_agent
from pdi_gym.envs import ErgodicEnv, make_env
from pdi_gym.evaluation import compare
from pdi_gym.metrics import columns
from pdi_gym.report.outputs import write_outputs
from pdi_gym.report.tables import running_averages
from pdi_gym.store import Store, slug
from tests.cases import Sensors

TINY = {"n_users": 10}
HORIZON = 40
SETTINGS = {"env": "WirelessPower-v0", "instances": 2, "horizon": HORIZON, "trials": 2, "n": 12, "seed": 0}
ODD = "pdi / small"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("tracked")
    agents = {
        "pdi-mc": make_agent("pdi-mc", T=12, beta=0.5),
        ODD: make_agent("pdi-mc", T=3),
        "random": "random",
    }
    rows = compare(agents, "WirelessPower-v0", 2, HORIZON, 2, out=out, n=12, env_kwargs=TINY)
    problem = make_env("WirelessPower-v0", TINY).make_problem(0)
    for _ in range(2):  # a second time must replace, not append
        write_outputs(out, rows, SETTINGS, problem)
    return out, rows


def events(out: Path, run: str) -> EventAccumulator:
    reader = EventAccumulator(
        str(out / "tensorboard" / run),
        size_guidance={"scalars": 0, "histograms": 0, "images": 0, "tensors": 0},
    )
    return reader.Reload()


def plugin_data(out: Path, run: str, tag: str) -> HParamsPluginData:
    return HParamsPluginData.FromString(events(out, run).PluginTagToContent(PLUGIN_NAME)[f"_hparams_/{tag}"])


def hparams(out: Path, run: str) -> Any:
    return plugin_data(out, run, "session_start_info").session_start_info.hparams


def test_one_run_per_agent_and_one_for_the_comparison(written: Any) -> None:
    out, _ = written
    runs = sorted(p.name for p in (out / "tensorboard").iterdir() if p.is_dir())
    assert runs == ["comparison", "pdi-mc", slug(ODD), "random"]
    assert all(len(list((out / "tensorboard" / run).iterdir())) == 1 for run in runs)
    assert not list(out.rglob(".pdi-gym*"))


def test_metrics_over_instances_and_their_means(written: Any) -> None:
    out, rows = written
    reader = events(out, "pdi-mc")
    own = [r for r in rows if r["agent"] == "pdi-mc"]
    read = reader.Scalars("metrics/mean_violation")
    assert [s.step for s in read] == [0, 1]
    assert [s.value for s in read] == pytest.approx([r["metrics"]["mean_violation"] for r in own], rel=1e-5)
    [mean] = reader.Scalars("mean/mean_rate")
    assert mean.value == pytest.approx(np.mean([r["metrics"]["mean_rate"] for r in own]), rel=1e-5)
    assert len(reader.Histograms("residuals")) == 2


def test_hparams_name_the_settings_and_list_the_metrics(written: Any) -> None:
    out, rows = written
    values = hparams(out, "pdi-mc")
    assert values["agent"].string_value == "pdi-mc" and values["preset"].string_value == "fast"
    assert values["setting/T"].number_value == 12 and values["setting/beta"].number_value == 0.5
    assert values["horizon"].number_value == HORIZON and values["seed"].number_value == 0
    assert "setting/T" not in hparams(out, "random")
    experiment = plugin_data(out, "comparison", "experiment").experiment
    named = [h.name for h in experiment.hparam_infos]
    assert named[:2] == ["agent", "preset"] and set(values) <= set(named)
    shown = {m.name.tag for m in experiment.metric_infos}
    assert shown == {f"mean/{name}" for name in columns(rows)}
    for run in ("pdi-mc", slug(ODD), "random"):
        assert shown <= set(events(out, run).Tags()["scalars"])


def test_scalars_over_slots_are_the_environments_averages(written: Any) -> None:
    """The environment, stepped with the same atoms, is the oracle."""
    out, rows = written
    reader = events(out, "random")
    row = next(r for r in rows if r["agent"] == "random")
    policy, _ = Store(out).policy(row)
    env = make_env("WirelessPower-v0", {**TINY, "horizon": HORIZON})
    env.reset(seed=0, options={"instance": 0})
    objective, violation, feasible = [], [], []
    for atom in policy.schedule(HORIZON, seeding.rng(0, seeding.TRIALS, 0)):
        _, reward, _, _, info = env.step(env.to_action(policy.actions[atom]))
        objective.append(-reward)
        violation.append(np.maximum(info["ergodic_residuals"], 0).mean())
        feasible.append((info["ergodic_residuals"] <= env.problem.tolerance).mean())
    running = np.cumsum(objective) / np.arange(1, HORIZON + 1)
    for name, expected in (("objective", running), ("violation", violation), ("feasible", feasible)):
        read = reader.Scalars(f"slots/{name}")
        assert [s.step for s in read] == list(range(1, HORIZON + 1))
        assert [s.value for s in read] == pytest.approx(list(expected), rel=1e-4, abs=1e-5)


def test_running_averages_of_a_problem_that_draws_nothing() -> None:
    problem = make_env("MixtureOfGaussians2D-v0", {}).problem
    policy = make_agent("random").sample(problem, n=6, seed=1)
    running = running_averages({"random": policy}, problem, 30, 3)["random"]
    atoms = policy.actions[policy.schedule(30, seeding.rng(3, seeding.TRIALS, 0))]
    means = np.cumsum(atoms, 0) / np.arange(1, 31)[:, None]  # the constraints are linear
    expected = np.maximum(problem.b.numpy() - means @ problem.A.numpy().T, 0).mean(-1)
    assert running.violation == pytest.approx(expected, abs=1e-5)


def test_running_averages_of_a_users_own_problem() -> None:
    problem = Sensors()
    policy = make_agent("random").sample(problem, n=5, seed=2)
    running = running_averages({"random": policy}, problem, 60, 9)["random"]
    env = ErgodicEnv(problem, horizon=60)
    env.reset(seed=9)
    for atom in policy.schedule(60, seeding.rng(9, seeding.TRIALS, 0)):
        *_, info = env.step(env.to_action(policy.actions[atom]))
    assert running.violation[-1] == pytest.approx(max(float(info["ergodic_residuals"][0]), 0), abs=1e-5)


def test_scalars_and_histograms_over_diffusion_steps(written: Any) -> None:
    out, rows = written
    reader = events(out, "pdi-mc")
    trace = Store(out).policy(rows[0])[0].info["trace"]
    assert [s.step for s in reader.Scalars("sampler/violation")] == list(range(12))
    largest = [s.value for s in reader.Scalars("sampler/largest_dual")]
    assert largest == pytest.approx(list(trace["duals"].max(-1)), rel=1e-6)
    histograms = reader.Histograms("duals")
    assert [h.step for h in histograms] == list(range(12))
    for k, h in enumerate(histograms):
        value = h.histogram_value
        assert value.num == 10 and value.max == pytest.approx(trace["duals"][k].max(), rel=1e-6)
        assert value.sum == pytest.approx(trace["duals"][k].sum(), rel=1e-5)
    assert not [t for t in events(out, "random").Tags()["scalars"] if t.startswith("sampler")]


def test_pictures(written: Any) -> None:
    out, _ = written
    comparison = events(out, "comparison")
    assert set(comparison.Tags()["images"]) == {
        f"figures/{n}" for n in ("tradeoff", "residuals", "denoising")
    }
    for run, tags in (("comparison", comparison.Tags()["images"]), ("random", ["figures/policy"])):
        for tag in tags:
            [image] = events(out, run).Images(tag)
            pixels = np.asarray(Image.open(io.BytesIO(image.encoded_image_string)))
            assert pixels.shape == (image.height, image.width, 3) and len(np.unique(pixels)) > 20


def test_the_layout_opens_on_the_comparison(written: Any) -> None:
    out, _ = written
    reader = events(out, "comparison")
    [tensor] = reader.Tensors("custom_scalars__config__")
    assert "custom_scalars" in reader.summary_metadata["custom_scalars__config__"].plugin_data.plugin_name
    layout = Layout.FromString(tensor.tensor_proto.string_val[0])
    slots, instances, sampler = layout.category
    assert not slots.closed and instances.closed and sampler.closed
    scalars = set(events(out, "pdi-mc").Tags()["scalars"])
    for category in layout.category:
        for chart in category.chart:
            [pattern] = chart.multiline.tag
            assert pattern.strip("^$") in scalars, "every chart must have something to show"


def test_the_table_is_there_as_text(written: Any) -> None:
    out, _ = written
    [text] = events(out, "comparison").Tensors("comparison/text_summary")
    assert b"| random |" in text.tensor_proto.string_val[0]
