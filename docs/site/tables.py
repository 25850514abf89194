# SPDX-License-Identifier: Apache-2.0
"""Makes lists of the reference: the daemon's metrics by their HELP texts, and the keys of a report by its schema."""
import json
import re

METRIC = re.compile(r'"(diesel_\w+)",\s*"(counter|gauge|histogram)",\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')


def cell(text):
    return re.sub(r"([|<*_])", r"\\\1", text.replace("\n", " "))


def metrics(files):
    rows = {}
    for file in files:
        for name, kind, text in METRIC.findall(file.read_text()):
            rows.setdefault(name, (kind, "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace('\\"', '"')))
    lines = [f"`{name}` ({kind})\n:   {cell(text)}\n" for name, (kind, text) in sorted(rows.items())]
    return ("# Metrics\n\n`dieseld` serves these metrics to Prometheus at `/metrics`, with the same texts. [Monitor dieseld](../how-to/monitor.md) lists those "
            "to watch, [alerts](alerts.md) the rules.\n\n") + "\n".join(lines) + "\n"


def kind(part):
    if "$ref" in part:
        name = part["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in part:
            return " or ".join(dict.fromkeys(kind(one) for one in part[key]))
    if "const" in part:
        return f"`{json.dumps(part['const'])}`"
    if "enum" in part:
        return " or ".join(f"`{json.dumps(one)}`" for one in part["enum"])
    types = part.get("type", "any")
    if types == "array":
        return f"array of {kind(part.get('items', {}))}"
    return types if isinstance(types, str) else " or ".join(types)


def rows(part, before=""):
    """Returns a row for each key. Keys of an object within follow it."""
    for name, value in part.get("properties", {}).items():
        yield f"| `{before}{name}` | {kind(value)} | {cell(value.get('description', ''))} |"
        for inner in [value, value.get("items", {}), *value.get("anyOf", []), *(one.get("items", {}) for one in value.get("anyOf", []))]:
            yield from rows(inner, f"{before}{name}.")


def schema(text):
    whole = json.loads(text)
    out = ["# The report as JSON", "", whole["description"], "", "`diesel-analyze report --format json` prints the report in this form. The [schema](../report.schema.json) is the same in JSON.", ""]
    for name, part in [("report", whole), *whole["$defs"].items()]:
        out += [f"## {name}", ""] + ([cell(part["description"]), ""] if name != "report" and "description" in part else [])
        table = list(rows(part))
        out += ["| key | type | meaning |", "|---|---|---|", *table, ""] if table else [kind(part), ""]
    return "\n".join(out)
