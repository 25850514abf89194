# SPDX-License-Identifier: Apache-2.0
"""Computes the ratios of bench_tuner.py from its raw figures. Measures nothing."""
import support
from tuning.scenarios import SCENARIOS
from tuning.sweep import CLOSE, axes, cost
from tuning.timeline import settled_s

SETTLE_QUIET_S = 10.0


def swept(scenario, raw):
    return all(f"sweep-{i}-{w}" in raw for i in range(len(scenario.phases)) for w in axes(scenario))


def points(scenario, raw, phase):
    return [point for workers in axes(scenario) for point in raw.get(f"sweep-{phase}-{workers}", ())]


def runs(raw, who):
    return [raw[key] for key in sorted(raw) if key.startswith(who + "-")]


def middle(values):
    values = [value for value in values if value is not None]
    return support.median(values) if values else None


def static(raw, phase):
    """Returns the static settings that were measured again: [(knobs, median rate, median cost, cpu, memory)]."""
    found = {}
    for final in runs(raw, "static"):
        for row in final:
            if row["phase"] == phase:
                found.setdefault(tuple(sorted(row["knobs"].items())), []).append(row)
    return [(dict(knobs), middle([r["rate"] for r in rows]), middle([cost(r) for r in rows]),
             middle([r["cpu"] for r in rows]), middle([r["memory"] for r in rows])) for knobs, rows in found.items()]


def change_times(run):
    """Returns when a knob changed, in seconds after the start. The first state is no change."""
    return [at for at, _ in run["knobs"][1:]]


def phase_figures(scenario, raw, index):
    tuned, found = runs(raw, "tuned"), static(raw, index)
    if not tuned or not found:
        return None
    rate = middle([run["phases"][index]["rate"] for run in tuned])
    best = max(found, key=lambda row: row[1])
    cheapest = min((row for row in found if row[1] >= (1 - CLOSE) * best[1]), key=lambda row: row[2])
    ends = [phase.seconds for phase in scenario.phases]
    begin, end = sum(ends[:index]), sum(ends[:index + 1])
    settled = [settled_s(change_times(run), begin, end, SETTLE_QUIET_S) for run in tuned]
    after = [sum(begin + s < at <= end for at in change_times(run)) for s, run in zip(settled, tuned)]
    rates = [row["rate"] for final in runs(raw, "static") for row in final
             if row["phase"] == index and row["knobs"] == vars(scenario.default())]
    own = {"cpu": middle([run["phases"][index]["cpu"] for run in tuned]),
           "memory": middle([run["phases"][index]["memory"] for run in tuned])}
    return {"tuned": rate, "best": best[1], "ratio": rate / best[1], "best_knobs": best[0], "cheapest_knobs": cheapest[0],
            "cost_ratio": cost(own) / cheapest[2], "cpu_ratio": own["cpu"] / cheapest[3],
            "memory_ratio": own["memory"] / cheapest[4], "settled_s": middle(settled), "settled_worst_s": max(settled),
            "changes_after": max(after), "default": middle(rates),
            "against_default": rate / middle(rates) if rates else None,
            "default_spread": (max(rates) - min(rates)) / middle(rates) if len(rates) > 1 else None}


def peer_figures(raw, who):
    """Returns ratios of the tuned daemon to the peer: area above 1 and the rest below 1 is better."""
    ours, theirs = runs(raw, "tuned"), runs(raw, who)
    if not ours or not theirs:
        return None
    ratio = {key: middle([run[key] for run in ours]) / middle([run[key] for run in theirs])
             for key in ("area", "memory_mean")}
    per_sample = [middle([run["cpu_s"] / max(1, run["area"]) for run in side]) for side in (ours, theirs)]
    return ratio | {"cpu_per_sample": per_sample[0] / per_sample[1]}


def table(raw):
    """Returns {scenario: {"phases": [...], peer: {...}}} of the existing figures."""
    found = {}
    for name, scenario in SCENARIOS.items():
        own = raw.get(name)
        if not own:
            continue
        phases = [phase_figures(scenario, own, i) for i in range(len(scenario.phases))]
        found[name] = {"phases": [p for p in phases if p]} | {
            who: peer_figures(own, who) for who in ("torch", "climber", "tfdata", "tfpython") if runs(own, who)}
    return found


def figures(raw):
    found = table(raw)
    phases = [(name, i, p) for name, row in found.items() for i, p in enumerate(row["phases"])]
    result = {"scenarios": len({name for name, _, _ in phases})}
    if not phases:
        return result
    result["worst"] = min(p["ratio"] for _, _, p in phases)
    result["worst_scenario"] = min(phases, key=lambda row: row[2]["ratio"])[0]
    result["resources"] = max(p["cost_ratio"] for _, _, p in phases)
    result["settle_start_s"] = max(p["settled_s"] for _, i, p in phases if i == 0)
    result |= {"settle_change_s": max(p["settled_s"] for _, i, p in phases if i)} if any(i for _, i, _ in phases) else {}
    result["changes_after"] = max(p["changes_after"] for _, _, p in phases)
    versus = [p["against_default"] for _, _, p in phases if p["against_default"]]
    if versus:
        result["worst_default"] = min(versus)
    for who in ("torch", "climber", "tfdata", "tfpython"):
        rows = [row[who] for row in found.values() if row.get(who)]
        if rows:
            result[f"{who}_area_worst"] = min(row["area"] for row in rows)
            result[f"{who}_cpu_worst"] = max(row["cpu_per_sample"] for row in rows)
            result[f"{who}_memory_worst"] = max(row["memory_mean"] for row in rows)
    if raw.get("tensorflow") not in (None, "measured"):
        result["tensorflow"] = "no"
    return result


def show(raw):
    for name, row in table(raw).items():
        for index, p in enumerate(row["phases"]):
            print(f"{name} {index}: tuned {p['tuned']:.0f}, best static {p['best']:.0f} samples/s: {p['ratio']:.3f}; "
                  f"resources {p['cost_ratio']:.2f} (CPU {p['cpu_ratio']:.2f}, memory {p['memory_ratio']:.2f}); "
                  f"settled after {p['settled_s']:.1f} s, then {p['changes_after']} changes; default {p['default'] or 0:.0f}")
        for who in ("torch", "climber", "tfdata", "tfpython"):
            if row.get(who):
                print(f"  against {who}: area {row[who]['area']:.2f}, CPU per sample {row[who]['cpu_per_sample']:.2f}, "
                      f"memory {row[who]['memory_mean']:.2f}")
