"""Kernels are timed, rates fitted and what those leave unsaid is learned, in the target's document."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator, Mapping

import numpy as np
import pytest

import mxamp.targets
from mxamp.probe.kernel_samples import read_kernels
from mxamp.probe.time_kernels import JUDGE_SEED, GraphTimes
from mxamp.targets import CostModel, Target, Work
from mxamp.targets.image_layout import BLOCKS, CHANNELS_LAST
from mxamp.targets.kernel_cost import Forest, KernelCost, cost_from_document
from tools.kernel_costs import amounts, collect, corrections, hours, level, networks, rates
from tools.kernel_costs.timings import off_by, part_of

learns = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None,
    reason="scikit-learn is for Python before 3.12",
)


def document(**kernels: Any) -> dict[str, Any]:
    """Return a target that is cpu-bf16 but for what kernels cost."""
    path = Path(mxamp.targets.__file__).parent / "builtin" / "cpu-bf16.json"
    found = json.loads(path.read_text("utf-8"))
    found["cost"] = {**found["cost"], "kernels": kernels, "corrections": {}}
    return dict(found)


RATES = {"float32": {"one": 2.0, "read": 1e-3}, "low": {"one": 1.0, "read": 1e-3}}


def times_longer(channels: int) -> float:
    """Return what no rate says: channels that fill no block of 16 take half as long again."""
    return 1.0 if channels % 16 == 0 else 1.5


def timed(count: int) -> list[dict[str, Any]]:
    """Return kernels as they are timed in FP32, every other one as a guest."""
    random = np.random.default_rng(0)
    found = []
    for number in range(count):
        shape = (1, int(random.choice([16, 32, 48, 7, 20, 100])), int(random.integers(1, 40)))
        size = math.prod(shape)
        work = Work(0, 2 * size, channels=shape[1], rank=3, inputs=(shape,), output=shape)
        us = times_longer(shape[1]) * (2.0 + 4e-3 * size) * random.uniform(0.98, 1.02)
        found.append(
            {"guest": bool(number % 2), "op": "exp", "work": work.to_document(), "us": {"float32": us}}
        )
    return found


def files(tmp_path: Path, kernels: list[dict[str, Any]], trees: Mapping[str, Any] = RATES) -> list[str]:
    """Write a target and timings; return how a program is told of them."""
    path, timings = tmp_path / "mine.json", tmp_path / "kernels.jsonl"
    path.write_text(json.dumps(document(exp=trees)), "utf-8")
    timings.write_text("".join(json.dumps(one) + "\n" for one in kernels), "utf-8")
    return [str(path), "--timings", str(timings)]


def cost_in(path: str) -> CostModel:
    cost = Target.from_document(json.loads(Path(path).read_text("utf-8")), source=path).cost
    assert cost is not None
    return cost


def microseconds(cost: CostModel, channels: int, *, low: bool = False) -> float:
    shape = (1, channels, 30)
    return cost.microseconds("exp", Work(0, 60 * channels, rank=3, inputs=(shape,), output=shape), low=low)


def expected(channels: int) -> float:
    return times_longer(channels) * (2.0 + 4e-3 * 30 * channels)


@learns
def test_what_rates_leave_unsaid_is_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = files(tmp_path, timed(600))
    corrections.main(arguments)
    cost = cost_in(arguments[0])
    for channels in (16, 20):
        assert microseconds(cost, channels) == pytest.approx(expected(channels), rel=0.08)
    said = capsys.readouterr().out
    assert "float32: 600 kernels" in said
    assert "100.0 % within 1.25 and 100.0 % within 2 with corrections" in said
    assert "low: 0 kernels are too few to learn from" in said
    assert cost.corrections.low is None


def test_rates_are_those_that_foretell_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = files(tmp_path, timed(600), {**RATES, "float32": {"one": 50.0}})
    rates.main(arguments)
    cost = cost_in(arguments[0])
    for channels in (16, 20):
        assert microseconds(cost, channels) == pytest.approx(expected(channels), rel=0.1)
    # Of the low dtype nothing was timed, and what was known of it stands.
    assert microseconds(cost, 16, low=True) == pytest.approx(1.0 + 1e-3 * 2 * 16 * 30)
    assert re.search(r"exp, float32: .*, 600 kernels, (9\d|100)\.\d % within 1.25", capsys.readouterr().out)


def test_trees_that_have_not_seen_all_kernels_tell_together(tmp_path: Path) -> None:
    """Each quarter of the shapes, parted in two ways, is unknown to a tree; together they are nearer."""
    random = np.random.default_rng(1)
    kernels = timed(400)
    for one in kernels:
        one["us"] = {"float32": one["us"]["float32"] * math.exp(random.normal(0, 0.3))}
    arguments = files(tmp_path, kernels)
    rates.main(arguments)
    told = cost_in(arguments[0]).kernels["exp"].float32
    assert isinstance(told, Forest)
    assert len(told.trees) == 8
    works = read_kernels(timed(1200)[400:])

    def off(cost: KernelCost) -> float:
        each = np.array([off_by(cost, sample, low=False) for sample in works], float)
        return float(each.std())

    assert off(told) < float(np.mean([off(tree) for tree in told.trees]))


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_a_shape_is_in_one_part_wherever_it_was_timed(turn: int) -> None:
    kernels = read_kernels(timed(400))
    parts = [part_of(one, 4, turn) for one in kernels]
    elsewhere = [one._replace(work=one.work._replace(around=7, model=9, operators=3)) for one in kernels]
    assert parts == [part_of(one, 4, turn) for one in elsewhere]
    assert set(parts) == {0, 1, 2, 3}
    other = [part_of(one, 4, turn + 1) for one in kernels]
    assert len(set(zip(parts, other))) == 16, "each turn parts those anew that were together"


def test_trees_are_made_as_much_longer_as_kernels_take_in_the_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of nine kernels one takes half as long again, which rates that go by medians do not say."""
    kernels = timed(600)
    for one in kernels[::9]:
        one["us"] = {"float32": 1.5 * one["us"]["float32"]}
    arguments = files(tmp_path, kernels)
    rates.main(arguments)
    said = re.search(r"all of them (\d\.\d+) times as long", capsys.readouterr().out)
    assert said is not None
    assert 1.005 < float(said[1]) < 1.05
    off = np.log(
        [
            expected_us / cost_in(arguments[0]).microseconds(sample.op, sample.work, low=False)
            for sample in read_kernels(kernels)
            for expected_us in [sample.times[0] or 0.0]
        ]
    )
    assert float(off.mean()) == pytest.approx(0.0, abs=0.01)


def test_several_processes_fit_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernels = timed(200)
    kernels += [{**one, "op": "sigmoid"} for one in timed(90)]
    found = []
    for processes in ("1", "2"):
        arguments = files(tmp_path, kernels)
        rates.main([*arguments, "--processes", processes])
        found.append((Path(arguments[0]).read_text("utf-8"), capsys.readouterr().out))
    assert found[0] == found[1]
    assert {"exp", "sigmoid"} <= cost_in(arguments[0]).kernels.keys()


def results(path: Path, **found: Any) -> str:
    """Write what bench-estimates found: random kernels and a network told half as long again as they take."""
    network = {"estimated_us": {"float32": 150.0}, "measured_us": {"prepared": 100.0}}
    known = {"target": "cpu-bf16", "seed": 7, "networks": {"resnet34_v1": network}}
    path.write_text(json.dumps({**known, **found}), "utf-8")
    return str(path)


def test_kernels_are_made_as_long_as_those_that_are_timed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Midway between random kernels, which take a tenth more, and networks, which take two thirds."""
    target = files(tmp_path, [])[0]
    before = [microseconds(cost_in(target), 20, low=low) for low in (False, True)]
    kernels = {
        "float32": {"exp": [1 / 1.2, 1.0]},
        "bfloat16": {"exp": [1 / 1.1]},
        "float32, each time": [9.0],
    }
    level.main([target, results(tmp_path / "found.json", kernels=kernels)])
    in_kernels, in_networks = (1.2 * 1.1) ** (1 / 3), 1 / 1.5
    longer = (in_kernels * in_networks) ** 0.5
    after = [microseconds(cost_in(target), 20, low=low) for low in (False, True)]
    assert after == pytest.approx([longer * one for one in before], rel=1e-3)  # rates have four digits
    printed = capsys.readouterr().out
    assert f"3 random kernels take {in_kernels:.3f} of what is told" in printed
    assert f"1 networks take {in_networks:.3f} of what is told" in printed
    assert f"all kernels take {longer:.3f} of that now" in printed


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"networks": {"resnet18_v1": {}}}, "judges by resnet18_v1; no level may come from them"),
        ({"networks": {"lenet": {}}}, "judges by lenet"),
        ({"seed": JUDGE_SEED}, f"judges by kernels from seed {JUDGE_SEED} on"),
        ({"target": "cpu-bf16-amx"}, "is of the target cpu-bf16-amx, not of cpu-bf16"),
        ({"networks": {}}, "neither kernels nor networks were measured"),
    ],
)
def test_no_level_comes_from_what_costs_are_judged_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: dict[str, Any], said: str
) -> None:
    target = files(tmp_path, [])[0]
    before = Path(target).read_bytes()
    with pytest.raises(SystemExit):
        level.main([target, results(tmp_path / "found.json", **found)])
    assert said in " ".join(capsys.readouterr().err.split())
    assert Path(target).read_bytes() == before


def test_what_only_networks_were_timed_for_is_in_the_mean_of_nothing() -> None:
    assert rates.in_the_mean([]) == 1.0
    assert rates.in_the_mean([0.1, 0.1, 50.0]) < 2.0, "accidents count as others do"


def test_an_hour_in_which_all_kernels_took_longer_is_evened_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alike = [{**one, "guest": True} for one in timed(6000) if one["work"]["channels"] % 16 == 0]
    kernels = alike[:1700]  # two times, for what is left over is too few for a third
    for one in kernels[:700]:
        one["us"] = {"float32": 1.2 * one["us"]["float32"]}
    kernels.insert(5, {**kernels[0], "network": "net"})
    arguments = files(tmp_path, kernels, {**RATES, "float32": {"one": 2.0, "read": 1e-3}})
    hours.main([*arguments, "-o", str(tmp_path / "even.jsonl")])
    evened = [json.loads(line) for line in (tmp_path / "even.jsonl").read_text("utf-8").splitlines()]
    assert evened[0]["us"] == kernels[5]["us"], "those of networks are as they were"
    random = [one for one in kernels if "network" not in one]
    times = [now["us"]["float32"] / one["us"]["float32"] for now, one in zip(evened[1:], random)]
    slow, quick = times[0], times[-1]
    assert times == pytest.approx([slow] * 700 + [quick] * 1000)
    assert quick / slow == pytest.approx(1.2, rel=0.05)
    assert quick * slow == pytest.approx(1.0), "the mean of both hours stays"
    assert "1700 random kernels of 2 times" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        hours.main([*arguments, "-o", str(tmp_path / "even.jsonl")])
    quiet = tmp_path / "quiet.jsonl"
    quiet.write_text("".join(json.dumps(one) + "\n" for one in alike[2000:2400]), "utf-8")
    hours.main([*arguments, "--quiet", str(quiet), "-o", str(tmp_path / "as-quiet.jsonl")])
    evened = [json.loads(line) for line in (tmp_path / "as-quiet.jsonl").read_text("utf-8").splitlines()]
    assert evened[1]["us"]["float32"] / random[0]["us"]["float32"] == pytest.approx(1 / 1.2, rel=0.05)
    assert evened[-1]["us"]["float32"] / random[-1]["us"]["float32"] == pytest.approx(1.0, rel=0.05)
    assert "of a quiet hour" in capsys.readouterr().out


def test_guests_tell_the_hour_of_what_was_timed_beside_them(tmp_path: Path) -> None:
    guests = [{**one, "guest": True} for one in timed(6000) if one["work"]["channels"] % 16 == 0][:1400]
    for one in guests[:700]:
        one["us"] = {"float32": 1.2 * one["us"]["float32"]}
    beside = [{**one, "guest": False, "us": {"float32": 0.5 * one["us"]["float32"]}} for one in guests]
    kernels = [one for both in zip(guests, beside) for one in both]
    arguments = files(tmp_path, kernels, {**RATES, "float32": {"one": 2.0, "read": 1e-3}})
    hours.main([*arguments, "-o", str(tmp_path / "even.jsonl")])
    evened = [json.loads(line) for line in (tmp_path / "even.jsonl").read_text("utf-8").splitlines()]
    times = [now["us"]["float32"] / one["us"]["float32"] for now, one in zip(evened, kernels)]
    assert times == pytest.approx([times[0]] * 1400 + [times[-1]] * 1400)
    assert times[-1] / times[0] == pytest.approx(1.2, rel=0.05)


@learns
def test_rates_are_fitted_beneath_corrections_that_stay(tmp_path: Path) -> None:
    arguments = files(tmp_path, timed(600))
    corrections.main(arguments)
    learned = cost_in(arguments[0]).corrections
    assert learned.float32 is not None
    # A cache that fills later: everything takes three times as long as when corrections were learned.
    slower = [{**one, "us": {"float32": 3 * one["us"]["float32"]}} for one in timed(600)]
    Path(arguments[2]).write_text("".join(json.dumps(one) + "\n" for one in slower), "utf-8")
    rates.main([*arguments, "--keep-corrections"])
    cost = cost_in(arguments[0])
    assert cost.corrections == learned
    for channels in (16, 20):
        assert microseconds(cost, channels) == pytest.approx(3 * expected(channels), rel=0.1)
    rates.main(arguments)
    assert cost_in(arguments[0]).corrections.float32 is None


def test_rates_of_another_target_are_taken_where_they_foretell_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = {
        "trait": "channels_fill",
        "below": 16.0,
        "then": {"one": 3.0, "read": 1.5e-3},
        "else": {"one": 2.0, "read": 1e-3},
    }
    there = Target.from_document(document(exp={"float32": right, "low": right}), source="another one")
    monkeypatch.setattr(rates.Target, "builtin", lambda name: {"another": there}[name])
    arguments = files(tmp_path, timed(24))
    rates.main([*arguments, "--like", "another"])
    # Made longer or fitted anew it would tell these kernels a trifle better, and others no better.
    assert "exp, float32: another, 24 kernels" in capsys.readouterr().out
    cost, known = cost_in(arguments[0]), there.cost
    assert known is not None
    for channels in (16, 20):  # as it is, but for what all are made longer by
        assert microseconds(cost, channels) == pytest.approx(microseconds(known, channels), rel=1e-2)


@pytest.mark.parametrize(
    ("before", "after", "is_taken"),
    [
        ((0.3, 0.3), (0.1, 0.1), True),
        ((0.3, 0.3), (0.28, 0.1), True),
        ((0.3, 0.3), (0.299, 0.299), False),  # may be chance
        ((0.3, 0.3), (0.05, 0.35), False),  # better for random kernels, and worse for networks'
        ((0.3, 0.3), (0.35, 0.05), False),
    ],
)
def test_new_rates_are_taken_where_clearly_better_and_no_kind_is_told_worse(
    before: tuple[float, float], after: tuple[float, float], is_taken: bool
) -> None:
    in_networks = np.arange(400) % 2 == 1
    noise = np.random.default_rng(0).normal(0, 0.03, (2, 400))
    off, anew = (np.where(in_networks, own[1], own[0]) + other for own, other in zip((before, after), noise))
    tree = cost_from_document({"one": 1.0}, "exp")
    assert rates.is_worth_it(rates.Choice(tree, "anew", anew), off, anew, in_networks) is is_taken


def test_rates_stay_where_new_ones_are_no_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that are there are exact but for the timer's noise."""
    right = {
        "trait": "channels_fill",
        "below": 16.0,
        "then": {"one": 3.0, "read": 1.5e-3},
        "else": {"one": 2.0, "read": 1e-3},
    }
    arguments = files(tmp_path, timed(600), {"float32": right, "low": right})
    rates.main([*arguments, "--keep-corrections"])
    assert "exp, float32: its own, 600 kernels" in capsys.readouterr().out
    Path(arguments[2]).write_text("".join(json.dumps(one) + "\n" for one in timed(30)), "utf-8")
    rates.main([*arguments, "--keep-corrections"])
    assert "exp, float32: as before, 30 kernels are too few" in capsys.readouterr().out
    assert cost_in(arguments[0]).kernels["exp"][0] == cost_from_document(right, "exp")


@pytest.mark.parametrize("is_beneath", [False, True])
def test_a_known_tree_beneath_corrections_is_not_replaced_by_one_from_nothing(is_beneath: bool) -> None:
    """Here its conditions are about nothing, and rates that lean on them are worse than none."""
    wrong: Any = {"one": 400.0}
    for below in (30.0, 25.0, 20.0, 15.0, 10.0, 5.0):
        wrong = {"trait": "row", "below": below, "then": {"one": 0.5 * below}, "else": wrong}
    known = Target.from_document(document(exp={"float32": wrong, "low": wrong}), source="known").cost
    assert known is not None
    samples = read_kernels(timed(600))
    choice = rates.best_cost(samples, "exp", {"known": known}, low=False, is_beneath=is_beneath)
    assert choice is not None
    assert choice.label == ("known, rates anew" if is_beneath else "anew")


def test_a_family_of_few_kernels_keeps_its_rates(tmp_path: Path) -> None:
    arguments = files(tmp_path, timed(1))
    before = cost_in(arguments[0])
    rates.main(arguments)
    assert cost_in(arguments[0]).kernels == before.kernels


@pytest.mark.parametrize(
    ("options", "more"), [([], 1), (["--only", "exp"], 8), (["--only", "RNN", "dot"], 8)]
)
def test_kernels_are_timed_and_added_to_those_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], more: int
) -> None:
    asked: list[tuple[int, int, int]] = []

    def guests_from(seed: int, count: int, only: Any) -> list[int]:
        assert list(only) == options[1:]
        asked.append((seed, count, 0))
        return [seed, seed + 2]

    def time_guests(timing: Any, target: Target, guests: Any, *, seed: int) -> Iterator[GraphTimes]:
        first, count, _ = asked[-1]
        asked[-1] = (first, count, round(timing.seconds))
        assert (list(guests), seed) == ([first, first + 2], first + count), "no graph has a guest's seed"
        now[0] += timing.seconds
        one, other, *hosts = (
            {**{key: one[key] for key in one if key != "guest"}, "family": "exp"} for one in timed(6)
        )
        yield GraphTimes([(guests[0], one), (guests[1], other)], hosts)

    now = [0.0]
    monkeypatch.setattr(collect, "guests_from", guests_from)
    monkeypatch.setattr(collect, "time_guests", time_guests)
    monkeypatch.setattr(collect.time, "monotonic", lambda: now[0])
    arguments = [*files(tmp_path, timed(20)), "--seconds", "350"]
    collect.main([*arguments, "--seed", "7", *options])
    assert asked == [(7, more * 3600, 300), (10_000_007, more * 600, 50)]
    kept = kernels_in(tmp_path)
    hosts = 0 if "RNN" in options else 4
    assert len(kept) == 20 + 2 * (2 + hosts)
    assert [one["seed"] for one in kept[20:] if one["guest"]] == [7, 9, 10_000_007, 10_000_009]
    assert sum(not one["guest"] for one in kept[20:]) == 2 * hosts
    asked.clear()
    collect.main([*arguments, *options])
    assert [seed for seed, _, _ in asked] == [20_000_000, 30_000_000], "behind those that are there"
    with pytest.raises(SystemExit):
        collect.main([*arguments, "--seed", "9", *options])
    assert len(kernels_in(tmp_path)) == 20 + 4 * (2 + hosts)


def kernels_in(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "kernels.jsonl").read_text("utf-8").splitlines()]


def test_kernels_that_were_timed_already_are_not_timed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same seeds are the same kernels, in the same graphs: they count twice and tell nothing new."""
    kernels = [{**one, "seed": 1000 + number} for number, one in enumerate(timed(4))]
    with pytest.raises(SystemExit):
        collect.main([*files(tmp_path, kernels), "--seconds", "5", "--seed", "1001"])
    assert "has 3 kernels of the same seeds already" in capsys.readouterr().err


def test_seeds_that_costs_are_judged_by_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        collect.main([*files(tmp_path, []), "--seconds", "5", "--seed", str(JUDGE_SEED - 1)])
    assert "kept to judge by" in capsys.readouterr().err


def test_networks_that_costs_are_judged_by_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = files(tmp_path, [])
    with pytest.raises(SystemExit):
        networks.main([arguments[0], "mobilenet0.5", "resnet50_v1:8", *arguments[1:]])
    assert "resnet50_v1:8: make bench-estimates judges by them" in capsys.readouterr().err


def test_kernels_of_a_network_are_timed_where_they_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gluoncv", reason="GluonCV has the networks")
    arguments = files(tmp_path, timed(20))
    networks.main([arguments[0], "mobilenetv2_0.25", "no_network", *arguments[1:]])
    said = capsys.readouterr().out
    assert re.search(r"mobilenetv2_0\.25: \d+ kernels timed", said)
    assert "no_network failed: " in said
    kept = [json.loads(line) for line in (tmp_path / "kernels.jsonl").read_text("utf-8").splitlines()][20:]
    assert {one["network"] for one in kept} == {"mobilenetv2_0.25"}
    samples = read_kernels(kept)
    for low in (False, True):
        families = [one.family for one in samples if one.times[low]]
        assert families.count("Convolution 1x1") > 20
        assert families.count("Convolution depthwise") > 10
    assert {one.family for one in samples} >= {"cast down", "cast up"}


@pytest.mark.parametrize(
    "program", [collect, networks, rates, corrections], ids=lambda program: program.__name__
)
def test_a_target_that_knows_no_kernels_is_refused(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(document()), "utf-8")
    with pytest.raises(SystemExit):
        program.main([str(path)])
    assert "mxamp probe" in capsys.readouterr().err


def blocked(channels: int, side: int, us: float, *, apart: bool) -> dict[str, Any]:
    """Return a timed ``exp`` of what a convolution wrote with channels last, or in blocks."""
    shape = (1, channels, side, side)
    order = CHANNELS_LAST if apart else BLOCKS
    work = Work(
        0,
        2 * math.prod(shape),
        channels=channels,
        rank=4,
        inputs=(shape,),
        output=shape,
        is_blocked=True,
        arrives_in=(order, order),
    )
    return {"op": "exp", "work": work.to_document(), "us": {"float32": us}}


def images(per_value: float, noise: float = 0.02) -> list[dict[str, Any]]:
    """Return timed images of which the values of channels last take so much longer, as they lie apart."""
    random, found = np.random.default_rng(0), []
    for _ in range(120):
        channels, side = int(random.choice([64, 128, 192, 256])), int(random.choice([6, 10, 14, 18]))
        is_apart = bool(random.random() < 0.7)
        size, apart = channels * side * side, channels & -channels
        us = 2.0 + 4e-3 * size + (per_value * size * apart if is_apart else 0.0)
        found.append(blocked(channels, side, us * random.uniform(1 - noise, 1 + noise), apart=is_apart))
    return found


def test_an_amount_that_trees_do_not_know_gets_a_rate_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = files(tmp_path, images(2e-5))
    amounts.main([*told, "gathered"])
    said = capsys.readouterr().out
    assert re.search(r"gathered, float32: (1\.9|2\.0|2)\S*e-05 microseconds for one; \d+ kernels", said), said
    assert "100.0 % within 1.25 and 100.0 % within 2 with it" in said
    assert "gathered, low: 0 kernels are too few" in said
    tree = json.loads(Path(told[0]).read_text("utf-8"))["cost"]["kernels"]["exp"]
    assert {**tree["float32"], "gathered": 0} == {**RATES["float32"], "gathered": 0}
    assert tree["float32"]["gathered"] == pytest.approx(2e-5, rel=0.05)
    assert tree["low"] == RATES["low"]


def test_an_amount_gets_its_rate_in_all_trees_of_a_family(tmp_path: Path) -> None:
    trees = [
        RATES["float32"],
        {"trait": "row", "below": 9.0, "then": RATES["float32"], "else": RATES["float32"]},
    ]
    told = files(tmp_path, images(2e-5), {**RATES, "float32": {"forest": trees}})
    amounts.main([*told, "gathered"])
    first, second = json.loads(Path(told[0]).read_text("utf-8"))["cost"]["kernels"]["exp"]["float32"][
        "forest"
    ]
    assert first["gathered"] == pytest.approx(2e-5, rel=0.05)
    assert second == {**trees[1], "then": first, "else": first}


def test_an_amount_that_costs_nothing_gets_no_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = files(tmp_path, images(0.0, noise=0.2))
    amounts.main([*told, "gathered"])
    assert "gathered, float32: nothing" in capsys.readouterr().out
    assert json.loads(Path(told[0]).read_text("utf-8"))["cost"]["kernels"] == {"exp": RATES}


def test_an_amount_that_a_tree_knows_keeps_its_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    knowing = {**RATES, "float32": {**RATES["float32"], "gathered": 1e-9}}
    told = files(tmp_path, images(2e-5), knowing)
    amounts.main([*told, "gathered"])
    assert "gathered, float32: 0 kernels are too few" in capsys.readouterr().out
    assert json.loads(Path(told[0]).read_text("utf-8"))["cost"]["kernels"] == {"exp": knowing}


def test_an_amount_is_one_of_those_that_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        amounts.main([*files(tmp_path, []), "gatherd"])
    assert "gathered" in capsys.readouterr().err
