# SPDX-License-Identifier: Apache-2.0
"""Reads a trace of torch.profiler (Chrome's format, as Kineto writes it) of a job whose next(loader) and steps are named "next" and
"step"."""
import json

WAITS = {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cuStreamSynchronize", "cuCtxSynchronize",
         "cuEventSynchronize"}
LONG_WAITS = ("cudaMemcpyAsync", "cudaFree", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemFree")  # calls that count as waits above 50 us, as in the report
LONG_US = 50
ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}


def read(path):
    """Returns seconds and counts from the first "next" to the end of the last "step". Without events of a GPU: only next_s and wall_s."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    # A torch that was built without Kineto writes only the list.
    events = [event for event in (document["traceEvents"] if isinstance(document, dict) else document) if event.get("ph") == "X"]
    nexts, steps = (intervals(e for e in events if e["name"] == name and e.get("cat") != "gpu_user_annotation") for name in ("next", "step"))
    trainer = next(e["tid"] for e in events if e["name"] == "next" and e.get("cat") != "gpu_user_annotation")
    begin, end = nexts[0][0], steps[-1][1]
    found = {"wall_s": (end - begin) / 1e6, "next_s": length(nexts) / 1e6}
    device = [e for e in events if e.get("cat") in ON_DEVICE]
    calls = [e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver") and begin <= e["ts"] < end]
    if not device or not calls:
        return found
    waits = merged(intervals(e for e in calls if e["tid"] == trainer and waits_for_device(e)))
    busy = merged(intervals(device))
    names = [e["name"] for e in device if e["cat"] == "gpu_memcpy" and begin <= e["ts"] < end]
    return found | {
        "wait_s": (length(waits) - common(waits, nexts)) / 1e6,
        "busy_s": common(busy, [(begin, end)]) / 1e6,
        "idle_in_next_s": (length(nexts) - common(busy, nexts)) / 1e6,
        "launches": sum("LaunchKernel" in e["name"] or "GraphLaunch" in e["name"] for e in calls),
        "to_device": sum("HtoD" in name for name in names),
        "to_host": sum("DtoH" in name for name in names),
    }


def waits_for_device(event):
    return event["name"] in WAITS or event["name"].startswith(LONG_WAITS) and event["dur"] > LONG_US


def intervals(events):
    return sorted((e["ts"], e["ts"] + e["dur"]) for e in events)


def merged(some):
    result = []
    for begin, end in some:
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def length(some):
    return sum(end - begin for begin, end in some)


def common(some, others):
    """Returns the intersection of two lists of intervals, each in order and without overlap."""
    total, i, j = 0, 0, 0
    while i < len(some) and j < len(others):
        total += max(0, min(some[i][1], others[j][1]) - max(some[i][0], others[j][0]))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return total
