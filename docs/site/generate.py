#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collects the sources of the site: the pages of docs/, and the generated pages of the reference.

    generate.py PROGRAMS MANUALS TARGET

PROGRAMS is the folder of the built programs. MANUALS is that of the manuals, which the build makes from the tables of options. TARGET
is written from scratch. A link from docs/ to a file elsewhere in the repository gets a copy of the file.
"""
import json
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys

import c_pages
import manuals
import python_pages
import tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
KINDS = {".md", ".svg", ".png", ".txt", ".json", ".py"}
NAV = (  # folders, each with the pages that come first; other pages follow by name
    ("Start", "get-started", ("install", "first-verdict", "first-fix")),
    ("Tutorials", "tutorials", ()),
    ("How-to", "how-to", ("read-a-report", "change-the-loader", "pack-a-dataset", "life-of-a-dataset", "resume-a-job", "checkpoints", "unmodified-jobs", "tune-a-job", "operating")),
    ("Troubleshooting", "troubleshooting", ("by-symptom", "by-message")),
    ("Migration", "migration", ("imagefolder", "webdataset")),
    ("Reference", "reference", (
        "diesel-analyze", "diesel-top", "dieselctl", "dieseld", "dieseld.conf", "environment", "metrics", "python", "loader", "diesel_loader", "c", "libdiesel",
        "report", "report-schema", "formats", "protocol", "alerts", "processes", "glossary", "../changelog")),
    ("Explanation", "explanation", (
        "measuring", *(f"measuring-{part}" for part in ("waits", "storage", "gpu", "checkpoints", "profile", "predictions", "privileges", "accuracy")),
        "tuning", "tuning-decisions", "tuning-simulation", "cluster", "scaling", "security",
        *(f"security-{part}" for part in ("datasets", "processes", "network", "tools", "promises")))),
    ("Contributing", "contributing", ("contributing", "first-patch", "architecture", "questions", "testing", "benchmarks")),
)
LINK = re.compile(r"(\]\()([^()\s]+)(\))")
FENCE = re.compile(r"^( *)(`{3,})[^\n]*\n.*?^\1\2[ ]*$", re.S | re.M)
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing/contributing.md", "CHANGELOG.md": "changelog.md", "bench/README.md": "contributing/benchmarks.md"}
PLAIN = "files"  # folder for copies of the repository's other files


def outside_fences(text, change):
    """Returns the text with `change` applied to all of it except blocks of code."""
    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[at:fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(text[at:])])


class Site:
    def __init__(self, target):
        self.target = target
        self.wanted = []

    def place(self, path):
        """Returns where a file of the repository lies in the site."""
        if path in PAGES:
            return PAGES[path]
        if path.startswith("docs/"):
            if path.startswith("docs/man/") and path[-1].isdigit():
                return f"reference/{posixpath.basename(path).rsplit('.', 1)[0]}.md"
            return path[5:]
        self.wanted.append(path)
        return f"{PLAIN}/{path}" + ("/README.txt" if (ROOT / path).is_dir() else "" if "." in posixpath.basename(path) else ".txt")

    def moved(self, source, page, text):
        def link(match):
            target, mark, anchor = match[2].partition("#")
            if not target or re.match(r"[a-z]+:|/", target):
                return match[0]
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
            return match[1] + posixpath.relpath(self.place(path), posixpath.dirname(page) or ".") + mark + anchor + match[3]
        return outside_fences(text, lambda part: LINK.sub(link, part))

    def write(self, page, text):
        path = self.target / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def copy_page(self, source, page):
        self.write(page, self.moved(source, page, (ROOT / source).read_text()))

    def copy_wanted(self):
        for path in sorted(set(self.wanted)):
            source = ROOT / path
            if source.is_dir():
                files = sorted(str(file.relative_to(source)) for file in source.rglob("*") if file.is_file())
                self.write(f"{PLAIN}/{path}/README.txt", f"The folder {path} of the source tree has these files:\n\n" + "\n".join(files) + "\n")
            elif source.is_file():
                self.write(f"{PLAIN}/{path}" + ("" if "." in source.name else ".txt"), source.read_text())
            else:
                raise SystemExit(f"generate.py: a page links to {path}, which does not exist")


def grouped(pages):
    """Puts the pages of verbs below their program's page, and the pages of a nested folder into a group with the folder's name."""
    groups = {f"reference/{file[:-2]}": [] for file in manuals.PROGRAMS}
    listed = []
    for page in pages:
        group = page[:-3] if page[:-3] in groups else next((name for name in groups if page.startswith(f"{name}-")), None)
        title = posixpath.basename(group or "")
        if page.count("/") > 1:
            group = posixpath.dirname(page)
            title = posixpath.basename(group).capitalize()
        if group and not groups.setdefault(group, []):
            listed.append({title: groups[group]})
        if group:
            groups[group].append(page)
        else:
            listed.append(page)
    return listed


def nav(target):
    """Returns the navigation for MkDocs as YAML (as JSON, which is YAML). The navigation contains every page."""
    pages = sorted(str(path.relative_to(target)) for path in target.rglob("*.md") if not str(path.relative_to(target)).startswith(PLAIN))
    ranked = {posixpath.normpath(f"{folder}/{name}.md"): (title, i) for title, folder, first in NAV for i, name in enumerate(first)}
    rows = {folder: title for title, folder, _ in reversed(NAV)}
    placed = {page: ranked.get(page, (rows.get(page.split("/")[0]), len(ranked))) for page in pages}
    listed = ["index.md"]
    for title, _, _ in NAV:
        there = [page for page in pages if placed[page][0] == title]
        there.sort(key=lambda page: (posixpath.dirname(page) if page.count("/") > 1 else "", placed[page][1], not page.endswith("/README.md"), page))
        if there:
            listed.append({title: grouped(there)})
    listed += [page for page in pages if not placed[page][0] and page != "index.md"]
    return json.dumps(listed, indent=1)


def reference(programs, made):
    """Returns the generated pages of reference/: {name: text}."""
    pages = {f"{name}.md": text for name, text in manuals.pages(made, DOCS / "man").items()}
    pages["python.md"] = python_pages.page(ROOT / "client" / "python" / "diesel_loader")
    pages["c.md"] = c_pages.page((ROOT / "client" / "include" / "client" / "diesel.h").read_text())
    pages["metrics.md"] = tables.metrics(sorted((ROOT / "daemon" / "run").glob("metrics*.c")))
    pages["report-schema.md"] = tables.schema((DOCS / "report.schema.json").read_text())
    pages["environment.md"] = manuals.environment(made, DOCS / "man")
    return pages


def main():
    programs, made, target = (pathlib.Path(arg) for arg in sys.argv[1:])
    shutil.rmtree(target, ignore_errors=True)
    site = Site(target)
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "docs"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    for path in files:
        if not os.path.exists(ROOT / path) or path.startswith(("docs/man/", "docs/site/")) or pathlib.Path(path).suffix not in KINDS:
            continue
        if path.endswith(".md"):
            site.copy_page(path, path[5:])
        else:
            (target / path[5:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, target / path[5:])
    for source, page in PAGES.items():
        site.copy_page(source, page)
    for name, text in reference(programs, made).items():
        site.write(f"reference/{name}", text)
    shutil.copy(DOCS / "site" / "site.css", target / "site.css")
    site.copy_wanted()
    (target.parent / "mkdocs.yml").write_text(
        f"INHERIT: {DOCS / 'site' / 'mkdocs.yml'}\ndocs_dir: {target.resolve()}\nsite_dir: {(target.parent / 'site').resolve()}\nnav: {nav(target)}\n")


if __name__ == "__main__":
    main()
