# SPDX-License-Identifier: Apache-2.0
"""Prints results of a GPU day as Markdown, and each as one line. The heading of simulated results says so."""
import machine
import statistics
import waits


def percent(value):
    return "-" if value is None else f"{100 * value:.1f}"


def number(value):
    return "-" if value is None else f"{value:.1f}"


def shown(row, values):
    form = number if row.endswith("a step") else percent
    return f"{form(values[0])}, {form(values[1])}"


def off(result):
    """Returns the rows that differ, in words. A report ends with the last whole step. If that is far from the job's end, the two sets of shares
    cover different times, and are not compared."""
    if abs(result["window"] - 1) > 0.05:
        return [f"not compared: the report covers {100 * result['window']:.0f} % of the job's time"]
    return [row for row in waits.ROWS if result["rows"][row][2]]


def in_words(piece, result):
    """Returns the line to print when an item is done."""
    if piece == "tests":
        return f"{result['ran']} passed, {result['skipped']} skipped"
    if piece in ("waits", "profiler"):
        wrong = off(result)
        words = ", ".join(f"{row} {shown(row, result['rows'][row])}" for row in waits.ROWS if any(result["rows"][row][:2]))
        return f"{result['report']['verdict']}; truth, report: {words}" + (f"; OFF: {', '.join(wrong)}" if wrong else "")
    if piece == "handoff":
        return f"{gb_per_s(result):.2f} GB/s"
    if piece in ("serving", "decoding"):
        return f"{result['samples'] / result['seconds']:,.0f} samples/s"
    return (f"{result['images'] / result['seconds']:,.0f} images/s, {100 * result['next_s'] / result['seconds']:.0f} % in next(), "
            f"loss: {losses(result)}")


def gb_per_s(result):
    return result["bytes"] / 1e9 / result["seconds"]


def table(head, rows):
    return [f"| {' | '.join(map(str, head))} |", "|" + "---|" * len(head), *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def done(document):
    return {name: of for name, of in document["items"].items() if "failed" not in of and "cannot" not in of}


def missing(document):
    return [f"- {name}: {'not possible' if 'cannot' in of else 'failed'}: {of.get('cannot') or of['failed']}"
            for name, of in document["items"].items() if "cannot" in of or "failed" in of]


def of_tests(items):
    return table(("class", "passed", "skipped"), [(name, of["ran"], of["skipped"]) for name, of in items.items()])


def of_waits(items):
    head = ("job", *(f"{row}{'' if row.endswith('a step') else ' (%)'}" for row in waits.ROWS), "verdict", "off")
    return ["Each cell shows the truth, then the report. \"GPU starved\" is a lower bound in the report.", "",
            *table(head, [(name, *(shown(row, of["rows"][row]) for row in waits.ROWS), of["report"]["verdict"], ", ".join(off(of)) or "-")
                          for name, of in items.items()])]


WAYS = {"pinned": "one pinned batch, copied repeatedly", "pageable": "one pageable batch, copied repeatedly", "slots": 'diesel_loader, device="cuda"',
        "workers": 'diesel_loader, device="cuda", a function in workers', "torch": "PyTorch's DataLoader, pin_memory, non_blocking"}


def of_handoff(items):
    rows = []
    for way, words in WAYS.items():
        mine = [of for name, of in items.items() if name.startswith(f"{way},")]
        if mine:
            rows.append((words, f"{statistics.median(map(gb_per_s, mine)):.2f}", f"{statistics.median(of['cpu_s'] / of['bytes'] * 1e9 for of in mine):.3f}", len(mine)))
    sums = {of["sum"] for of in items.values()} - {None}
    return [*table(("way", "GB/s", "CPU s per GB", "rounds"), rows), *(["The ways did not read the same bytes.", ""] if len(sums) > 1 else [])]


def of_scaling(items):
    """Returns the table of samples per second by way and number of cores; in brackets, samples per CPU second of the way's processes."""
    lines, sizes = [], sorted({of.get("size", 0) for of in items.values()})
    for size in sizes:
        mine = [of for of in items.values() if of.get("size", 0) == size]
        cores = sorted({of["cores"] for of in mine})
        found = {(name(of), of["cores"]): f"{of['samples'] / of['seconds']:,.0f} ({of['samples'] / max(of['own_cpu_s'], 1e-9):,.0f})" for of in mine}
        ways = list(dict.fromkeys(way for way, _ in found))
        lines += table((f"{size} bytes; cores:" if size else "cores:", *cores), [(way, *(found.get((way, n), "-") for n in cores)) for way in ways])
    return ["Samples per second, and per CPU second of the way's processes in brackets.", "", *lines]


def name(of):
    """Returns the name of a table's row. Ways with one worker per core share a row."""
    way, _, workers = of["way"].partition("-")
    return f"{way}, a worker per core" if workers == str(of["cores"]) and workers != "0" else f"{way}, no workers" if workers == "0" else of["way"]


def losses(of):
    return "-" if of["loss_first"] is None else f"{of['loss_first']:.2f}, {of['loss_last']:.2f}"


def of_resnet(items):
    return table(("loader", "images/s", "in next() (%)", "images per CPU second of the machine", "loss: first and last tenth of steps", "seconds"),
                 [(way, f"{of['images'] / of['seconds']:,.0f}", percent(of["next_s"] / of["seconds"]), f"{of['images'] / max(of['cpu_s'], 1e-9):,.0f}",
                   losses(of), f"{of['seconds']:.0f}") for way, of in items.items()])


TABLES = {"tests": of_tests, "waits": of_waits, "profiler": of_waits, "handoff": of_handoff, "serving": of_scaling, "decoding": of_scaling,
          "resnet-torch": of_resnet, "resnet-ours": of_resnet}


def markdown(here, documents):
    if here is None or not any(documents.values()):
        return "There are no results yet."
    recording = "records exactly" if here["recording"] == "exact" else "samples (BPF is not permitted)"
    lines = [f"Machine: {machine.in_words(here)}. DIESEL {here['commit']}; diesel-analyze {recording}.", ""]
    for piece, document in documents.items():
        if document:
            lines += [f"### {piece}{' (simulated)' if document['simulated'] else ''}", ""]
            lines += [f"Simulated: {document['how']}.", ""] if document["simulated"] else []
            items = done(document)
            lines += TABLES[piece](items) if items else []
            lines += [*missing(document), ""] if missing(document) else []
    return "\n".join(lines).rstrip()
