# SPDX-License-Identifier: Apache-2.0
"""Makes the picture of diesel-top in the README: the cells of a real terminal (tmux) in which it runs, as SVG.

    python3 docs/screens/make.py [--keys KEY ...] [--size COLSxROWS] [--seconds S] [--text] [TARGET.svg]

Two training jobs run next to it, on photographs like the demo's: one uses PyTorch's own loader, the other is served by a
dieseld started for it, which tunes it. With root the storage of both is slow, and nothing stays in the page cache. Nothing is drawn by hand: figures and decisions are what these jobs did. Takes some
minutes; with root diesel-top sees the jobs by BPF, without it samples. --keys presses keys first (tmux's names),
--text prints the screen, too.
"""
import argparse
import contextlib
import html
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "build" / "screens"
sys.path += [str(ROOT / "bench"), str(ROOT / "demo")]
import photos  # noqa: E402
import support  # noqa: E402

N_PHOTOS = 600
IOPS, BANDWIDTH = 60, 8_000_000  # limits of the slow storage, per second
CELL_W, CELL_H, FONT = 8.4, 18, 14
PALETTE = ("#1e1e1e", "#e0524a", "#5fb760", "#d9a82e", "#4f87d9", "#b678c8", "#3fb3b3", "#d4d4d4")
PLAIN, BACK = "#d4d4d4", "#1e1e1e"


class Terminal:
    """A command in a terminal of a separate tmux server."""

    def __init__(self, command, cols, rows):
        self.server = f"diesel-screens-{os.getpid()}"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(cols), "-y", str(rows),
                  "exec env LC_ALL=C.UTF-8 TERM=screen-256color " + command)

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-L", self.server, *arguments], stdout=subprocess.PIPE, text=True,
                              check=False).stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")


def runs(line):
    """(text, foreground, background, is bold) of a captured line: what SGR sequences say."""
    style = {"fg": None, "bg": None, "bold": False, "dim": False, "reverse": False}
    for codes, text in re.findall(r"\x1b\[([\d;]*)m|([^\x1b]+)", re.sub(r"\x1b[()][0B]|[\x0e\x0f]", "", line)):
        if text:
            fg, bg = style["fg"] or PLAIN, style["bg"]
            if style["dim"]:
                fg = "#8a8a8a"
            if style["reverse"]:
                fg, bg = BACK, style["fg"] or PLAIN
            yield text, fg, bg, style["bold"]
            continue
        for code in map(int, codes.split(";") if codes else [0]):
            if code == 0:
                style = dict.fromkeys(style)
            elif code in (1, 2, 7):
                style[{1: "bold", 2: "dim", 7: "reverse"}[code]] = True
            elif 30 <= code <= 39:
                style["fg"] = PALETTE[code - 30] if code < 38 else None
            elif 40 <= code <= 49:
                style["bg"] = PALETTE[code - 40] if code < 48 else None


def svg(screen, cols, rows):
    """Returns the captured screen (tmux capture-pane -e) as an SVG picture. Blocks are rectangles: fonts leave gaps between them."""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {cols * CELL_W + 16:.0f} {rows * CELL_H + 16}" '
           f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{FONT}">',
           f'<rect width="100%" height="100%" rx="6" fill="{BACK}"/>']
    for y, line in enumerate(screen.split("\n")[:rows]):
        x = 0
        for text, fg, bg, bold in runs(line):
            left, top, width = 8 + x * CELL_W, 8 + y * CELL_H, len(text) * CELL_W
            if bg:
                out.append(f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{CELL_H}" fill="{bg}"/>')
            for match in re.finditer(r"\u2588+|[^\u2588]+", text):
                at, n = left + match.start() * CELL_W, len(match.group())
                if match.group()[0] == "\u2588":
                    out.append(f'<rect x="{at:.1f}" y="{top}" width="{n * CELL_W:.1f}" height="{CELL_H}" fill="{fg}"/>')
                elif match.group().strip():
                    out.append(f'<text x="{at:.1f}" y="{top + 14}" textLength="{n * CELL_W:.1f}" xml:space="preserve" '
                               f'font-weight="{"bold" if bold else "normal"}" fill="{fg}">{html.escape(match.group())}</text>')
            x += len(text)
    return "\n".join([*out, "</svg>\n"])


@contextlib.contextmanager
def slow_storage():
    """Yields a function that makes a command run on slow storage, if that is possible."""
    if support.Throttle.why_not(WORK):
        yield lambda command: list(map(str, command))
        return
    stop = threading.Event()

    def forget():
        while not stop.wait(3):
            support.evict(path for path in (WORK / "photos").rglob("*") if path.is_file())

    thread = threading.Thread(target=forget)
    thread.start()
    try:
        with support.Throttle(WORK, iops=IOPS, bps=BANDWIDTH) as disk:
            yield disk.command
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def jobs():
    """Runs the two jobs and the daemon, and yields the daemon's socket."""
    source, dataset = WORK / "photos", WORK / "photos.diesel"
    if not source.exists():
        photos.make(source, N_PHOTOS, lambda done: None)
    if not dataset.exists():
        subprocess.run([support.program("dieselctl"), "pack", source, dataset], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder, slow_storage() as slow:
        support.warm("torch", "torchvision")  # so that importing them does not use the slow storage
        socket = os.path.join(folder, "dieseld.sock")
        started = [subprocess.Popen(slow([support.program("dieseld"), "--socket", socket, "--cache", "256M",
                                          "--metrics", "off"]), stderr=subprocess.DEVNULL)]
        try:
            while not os.path.exists(socket):
                time.sleep(0.1)
            environment = {**os.environ, "DIESEL_SOCKET": socket, "PYTHONPATH": str(ROOT / "client" / "python"),
                           "DIESEL_LIB": os.environ.get("DIESEL_LIB", str(ROOT / "build" / "release" / "lib"))}
            for name, arguments in (("photos.py", [source, "--workers", "1"]),
                                    ("photos-served.py", [dataset, "--diesel", "--workers", "auto"])):
                script = pathlib.Path(folder) / name
                script.symlink_to(ROOT / "demo" / "train.py")
                started.append(subprocess.Popen(slow([support.PYTHON, script, *arguments, "--epochs", "10000"]),
                                                stdout=subprocess.DEVNULL, env=environment))
            yield socket
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", nargs="*", default=[])
    parser.add_argument("--size", default="110x30")
    parser.add_argument("--seconds", type=float, default=75)
    parser.add_argument("--text", action="store_true")
    parser.add_argument("target", nargs="?", default=HERE / "diesel-top.svg", type=pathlib.Path)
    options = parser.parse_args()
    cols, rows = map(int, options.size.split("x"))
    WORK.mkdir(parents=True, exist_ok=True)
    with jobs() as socket, Terminal(f"{support.program('diesel-top')} --socket {socket}", cols, rows) as terminal:
        time.sleep(options.seconds)
        for key in ("F4", *"photos", "Enter"):  # hides other training jobs on this machine
            terminal.tmux("send-keys", key)
            time.sleep(0.3)
        time.sleep(3)
        for key in options.keys:
            terminal.tmux("send-keys", key)
            time.sleep(2)
        screen = terminal.tmux("capture-pane", "-p", "-e")
        text = terminal.tmux("capture-pane", "-p")
    if not text.strip():
        sys.exit("screens: diesel-top showed nothing (is it built, and does it run by itself?)")
    options.target.write_text(svg(screen, cols, rows))
    print(text if options.text else f"{options.target}: {cols} x {rows} cells")


if __name__ == "__main__":
    main()
