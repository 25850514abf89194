# SPDX-License-Identifier: Apache-2.0
"""Runs the tuner on simulated jobs.
1,000 random scenarios are compared with the best static setting of each, with a hill climber on the same knobs, and with PyTorch's usual
settings. 400 scenarios of several jobs are compared with an equal split. In 200 scenarios the daemon decodes images and has space for a
part of the decoded copies; they are compared with the best static setting with and without these.

    ./dev bench simulate            figures, bench/results/simulate.json and the pictures of docs/explanation/tuning-simulation.md
    ./dev bench simulate -n 100     fewer

A scenario is judged by the simulator's exact rates. Regret is 1 - (rate of the last knobs / rate of the best static ones), in the
worst phase. Cost is CPU and memory as shares of the node, divided by those of the cheapest static setting within 2 % of the best.
"""
import argparse
import csv
import io
import json
import subprocess

import support
from tuning import simulate_plots

NAME = "simulate"
TRACED = 147  # a scenario with a change of phase: storage gets slower


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def column(scenarios, policy, field):
    return [scenario[policy][field] for scenario in scenarios]


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=True)


def trace(program, seed):
    done = run(program, "--trace", seed)
    return list(csv.DictReader(io.StringIO(done.stdout)))


def summary(scenarios, multi, decoding):
    tuner = {field: column(scenarios, "tuner", field) for field in scenarios[0]["tuner"]}
    steady = [s for s in scenarios if not s["bursts"]]
    figures = {
        "scenarios": len(scenarios),
        "regret_p50": quantile(tuner["regret"], 0.5),
        "regret_p99": quantile(tuner["regret"], 0.99),
        "regret_worst": max(tuner["regret"]),
        "cost_p50": quantile(tuner["cost_ratio"], 0.5),
        "cost_p95": quantile(tuner["cost_ratio"], 0.95),
        "settle_start_p95_s": quantile(tuner["settle_start_s"], 0.95),
        "settle_change_p95_s": quantile(tuner["settle_change_s"], 0.95),
        "changes_per_10s_p99": quantile(column(steady, "tuner", "changes_settled"), 0.99),
        "changes_per_10s_p99_bursts": quantile([s["tuner"]["changes_settled"] for s in scenarios if s["bursts"]] or [0],
                                               0.99),
        "limits_broken": sum(s["limit_broken"] for s in scenarios + multi + decoding),
    }
    for policy in ("tuner", "climber", "default"):
        figures[f"area_{policy}"] = mean(column(scenarios, policy, "area"))
        figures[f"cost_{policy}"] = mean(column(scenarios, policy, "mean_cost"))
    for field in ("gain", "best_gain"):
        figures[f"decoding_{field}_p50"] = quantile([s[field] for s in decoding], 0.5)
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        figures[f"decoding_regret_{name}"] = quantile([s["regret"] for s in decoding], q)
    for jobs in (2, 3):
        chosen = [m for m in multi if m["jobs"] == jobs]
        figures[f"jobs{jobs}_total"] = mean(m["total"] for m in chosen)
        figures[f"jobs{jobs}_least_p05"] = quantile([m["least"] for m in chosen], 0.05)
    return figures


def rows(scenarios):
    """Returns lines of CSV, the first one with names, so that a thousand scenarios stay readable."""
    flat = []
    for scenario in scenarios:
        flat.append({})
        for key, value in scenario.items():
            if isinstance(value, dict):
                flat[-1].update({f"{key}_{field}": figure for field, figure in value.items()})
            else:
                flat[-1][key] = int(value) if isinstance(value, bool) else value
    return [",".join(flat[0]), *(",".join(str(value) for value in row.values()) for row in flat)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=1000, help="number of scenarios with one job (default: %(default)s)")
    options = parser.parse_args()
    program = support.program("bench_tuner_sim")
    raw = json.loads(run(program, options.n).stdout)
    figures = summary(raw["scenarios"], raw["multi"], raw["decoding"])
    simulate_plots.draw_all(support.ROOT / "docs" / "explanation" / "tuning", raw["scenarios"], raw["multi"], trace(program, TRACED))
    for key, value in figures.items():
        print(f"{key:28} {value:.4g}")
    support.result_write(NAME, {"one_job": rows(raw["scenarios"]), "several": rows(raw["multi"]),
                                "decoding": rows(raw["decoding"])}, **figures)


if __name__ == "__main__":
    main()
