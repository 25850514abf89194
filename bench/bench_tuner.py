# SPDX-License-Identifier: Apache-2.0
"""The tuned daemon against the best static settings, and against its peers, in eight real scenarios.

Each scenario (scenarios.py) has three parts:
- an exhaustive sweep of static settings in steady state (sweep.py)
- alternately, for some rounds, the tuned daemon from a cold start through the scenario's timeline, and longer measurements of the best
  and the cheapest static settings found and of the default ones
- the peers through the same timeline (timeline.py)

Jobs are real PyTorch processes on a really throttled disk; the device is simulated by waiting.

    bench_tuner.py [--scenario NAME ...] [--only sweep|tuned|peers] [--rounds N] [--peer-rounds N]
                   [--minutes M] [--fresh]

The results are kept in build/bench/tuner.json after each piece, and a later call continues with the missing pieces. A whole run takes an
hour, in pieces of a minute. Half of it is the sweeps and the peers, which --rounds does not repeat. --fresh forgets the named scenarios first.
"""
import argparse
import os
import time

from tuning import bed as testbed
import support
from peers import tensorflow_job
from tuning import judge, sweep, timeline
from tuning.scenarios import SCENARIOS

ROUNDS, PEER_ROUNDS = 2, 1
PEERS = ("torch", "climber", "tfdata", "tfpython")  # the last one needs Python work
FINAL_S = 4.0
NAME = "tuner"


class Run:
    def __init__(self, options):
        self.options, self.raw = options, support.raw_read(NAME)
        self.end = time.monotonic() + 60 * options.minutes
        for name in options.scenario if options.fresh else ():
            self.raw.pop(name, None)

    def wants(self, part):
        return self.options.only in (None, part)

    def units(self):
        """Returns (key within the scenario's raw figures, measurement) of all missing pieces, in order."""
        for name in self.options.scenario:
            scenario, raw = SCENARIOS[name], self.raw.setdefault(name, {})
            for index, phase in enumerate(scenario.phases):
                for workers in sweep.axes(scenario) if self.wants("sweep") else ():
                    key = f"sweep-{index}-{workers}"
                    if key not in raw:
                        yield scenario, key, lambda b, s=scenario, p=phase, w=workers: sweep.sweep(b, s, p, w)
            for number in range(self.options.rounds if self.wants("tuned") else 0):
                if f"tuned-{number}" not in raw:
                    yield scenario, f"tuned-{number}", lambda b, s=scenario: timeline.run(b, s, "tuned")
                key = f"static-{number}"
                if key not in raw and judge.swept(scenario, raw):
                    yield scenario, key, lambda b, s=scenario, r=raw: self.finals(b, s, r)
            for number in range(self.options.peer_rounds if self.wants("peers") else 0):
                for who in PEERS:
                    key = f"{who}-{number}"
                    if key in raw or who == "tfpython" and not scenario.transform:
                        continue
                    if not who.startswith("tf") or self.tensorflow():
                        yield scenario, key, lambda b, s=scenario, w=who: timeline.run(b, s, w, tensorflow=self.tensorflow())

    def tensorflow(self):
        if not hasattr(self, "_tensorflow"):
            self._tensorflow, why = tensorflow_job.tensorflow_python()
            self.raw["tensorflow"] = why or "measured"
            if why:
                print(f"  without TensorFlow: {why}", flush=True)
        return self._tensorflow

    @staticmethod
    def finals(bed, scenario, raw):
        """Measures the best and the cheapest static settings of each phase for longer."""
        found = []
        for index, phase in enumerate(scenario.phases):
            for knobs in sweep.candidates(scenario, judge.points(scenario, raw, index)):
                with timeline.Neighbour(scenario.neighbour):
                    figures = sweep.again(bed, scenario, phase, knobs, FINAL_S)
                print(f"    phase {index}: {knobs.text()}: {figures['rate']:.0f} samples/s", flush=True)
                found.append({"phase": index, "knobs": vars(knobs), **figures})
        return found

    def measure(self):
        pending = list(self.units())
        if not pending:
            return
        with testbed.Bed() as bed:
            while pending and time.monotonic() < self.end:
                scenario, key, measure = pending[0]
                print(f"  {scenario.name} {key}", flush=True)
                begin = time.monotonic()
                self.raw[scenario.name][key] = measure(bed)
                print(f"  {scenario.name} {key}: {time.monotonic() - begin:.0f} s", flush=True)
                self.save()
                pending = list(self.units())

    def save(self):
        figures = judge.figures(self.raw)
        support.result_write(NAME, self.raw, quiet=True, **figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS), metavar="NAME",
                        help=", ".join(SCENARIOS))
    parser.add_argument("--only", choices=("sweep", "tuned", "peers"), help="measure only this part")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of the tuned daemon and the static settings (default: %(default)s)")
    parser.add_argument("--peer-rounds", type=int, default=PEER_ROUNDS, help="rounds of the peers (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no further measurement after this many minutes")
    parser.add_argument("--fresh", action="store_true", help="discard the results of the scenarios, and measure again")
    options = parser.parse_args()
    if os.geteuid() != 0:
        support.skip("throttling a disk and dropping caches need root")
    run = Run(options)
    run.measure()
    judge.show(run.raw)
    support.result_write(NAME, run.raw, **judge.figures(run.raw))


if __name__ == "__main__":
    main()
