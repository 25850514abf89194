# SPDX-License-Identifier: Apache-2.0
"""A job that trains and saves in one way. The device is simulated: a step sleeps. Prints one line of JSON.

Arguments: way, MB of state, seconds of a step, seconds to run, an empty folder."""
import json
import os
import pathlib
import sys
import time
import warnings

import torch

warnings.filterwarnings("ignore", message="torch.distributed is disabled")
BOUND = 0.035
N_SAVES = 4      # of a peer, whose costs are measured one by one
N_BASE = 20


def make(megabytes):
    """A model and Adam's state of it: three numbers a parameter, in layers of at most 16 MB."""
    n = int(megabytes * 1e6) // 12
    layers = []
    while n > 0:
        layers.append(torch.nn.Parameter(torch.randn(min(n, 4_000_000))))
        n -= layers[-1].numel()
    model = torch.nn.ParameterList(layers)
    optimizer = torch.optim.Adam(model.parameters())
    for layer in layers:
        layer.grad = torch.ones_like(layer)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return model, optimizer


def step(step_s):
    begin = time.perf_counter()
    time.sleep(step_s)
    return time.perf_counter() - begin


def ours(model, optimizer, folder, step_s, seconds):
    from diesel_loader.checkpoint import Checkpointer
    checkpointer = Checkpointer(folder, overhead=BOUND, model=model, optimizer=optimizer)
    base = sum(step(step_s) for _ in range(N_BASE)) / N_BASE
    begin = time.perf_counter()
    n = 0
    worst = 0.0
    steps = []   # (end, seconds without the checkpointer, whether a checkpoint was being written)
    while time.perf_counter() - begin < seconds:
        before = time.perf_counter()
        took, writing = step(step_s), checkpointer._saver.is_writing
        checkpointer.step()
        worst = max(worst, time.perf_counter() - before - base)
        steps.append((time.perf_counter() - begin, took, writing))
        n += 1
    elapsed = time.perf_counter() - begin
    figures = checkpointer.figures()
    checkpointer.close()
    return {"overhead": elapsed / n / base - 1, "per_hour": figures["checkpoints"] / elapsed * 3600, "checkpoints": figures["checkpoints"],
            "snapshot_s": figures["snapshot_s"], "written_s": figures["written_s"], "interval_steps": figures["interval_steps"], "worst_s": worst,
            "worst_minute": worst_minute(steps)}


def worst_minute(steps):
    """Returns the largest overhead of a window of 60 s, or None in a shorter run. Its undisturbed steps are those while nothing is written."""
    worst, first, before = None, 0, 0.0
    for last, (end, _, _) in enumerate(steps):
        while end - before > 60:
            before, first = steps[first][0], first + 1
            window = steps[first:last + 1]
            free = [took for _, took, writing in window if not writing]
            if free:
                worst = max(worst or 0.0, (end - before) / len(window) / (sum(free) / len(free)) - 1)
    return worst


def torch_save(state, folder, i):
    path = os.path.join(folder, "state.pt")
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)
    return lambda: True


def async_save(state, folder, i):
    import torch.distributed.checkpoint as dcp
    done = dcp.async_save(state, checkpoint_id=os.path.join(folder, f"step-{i % 2}"))
    return getattr(done, "upload_completion", done).done


def peer(save, model, optimizer, folder, step_s):
    """Saves several times, each time undisturbed, and returns how often that could be at the bound."""
    costs, fulls = [], []
    base = sum(step(step_s) for _ in range(N_BASE)) / N_BASE
    for i in range(N_SAVES):
        begin = time.perf_counter()
        done = save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder, i)
        cost = time.perf_counter() - begin
        while not done():
            cost += step(step_s) - base
        costs.append(cost)
        fulls.append(time.perf_counter() - begin)
        for _ in range(3):
            step(step_s)
    costs, fulls = costs[1:], fulls[1:]   # the first one makes buffers
    cost, full = sum(costs) / len(costs), sum(fulls) / len(fulls)
    every_s = max(cost / BOUND, full, base)
    return {"cost_s": cost, "full_s": full, "per_hour": 3600 / every_s, "overhead": cost / every_s}


def main():
    way, megabytes, step_s, seconds, folder = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    model, optimizer = make(megabytes)
    if way == "diesel":
        answer = ours(model, optimizer, folder, step_s, seconds)
    else:
        answer = peer({"torch_save": torch_save, "async_save": async_save}[way], model, optimizer, folder, step_s)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
