# SPDX-License-Identifier: Apache-2.0
"""Draws the simulator's figures as SVG: without a library, light and dark (colours by CSS)."""
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 64, 16, 40, 44
COLOURS = {"tuner": "#1a7f5a", "climber": "#c0671b", "default": "#7a5bb5"}
NAMES = {"tuner": "DIESEL's tuner", "climber": "hill climber", "default": "workers = cores, prefetch 2"}
STYLE = """<style>
text { font: 12px sans-serif; fill: #333 } .title { font-size: 14px; font-weight: bold }
.grid { stroke: #ddd } .axis { stroke: #888 } .back { fill: #fff }
@media (prefers-color-scheme: dark) {
 text { fill: #ddd } .grid { stroke: #333 } .axis { stroke: #888 } .back { fill: #111 } }
</style>"""


class Plot:
    """Axes in data units; x may be logarithmic."""

    def __init__(self, title, x_label, x, y, log_x=False, percent_y=False):
        self.x, self.y, self.log_x = x, y, log_x
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
                      f"<title>{title}</title>", STYLE,
                      f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>',
                      f'<text class="title" x="{LEFT}" y="18">{title}</text>',
                      f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{x_label}</text>']
        for value in ticks(*y):
            self.line(value, LEFT, WIDTH - RIGHT)
            label = f"{value:.0%}" if percent_y else f"{value:g}"
            self.parts.append(f'<text x="{LEFT - 6}" y="{self.at_y(value) + 4:.1f}" text-anchor="end">{label}</text>')
        for value in log_ticks(*x) if log_x else ticks(*x):
            self.parts.append(f'<text x="{self.at_x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
                              f"{value:g}</text>")

    def line(self, value, left, right, css="grid"):
        y = self.at_y(value)
        self.parts.append(f'<line class="{css}" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')

    def at_x(self, value):
        low, high = self.x
        if self.log_x:
            value, low, high = (math.log(max(v, self.x[0])) for v in (value, low, high))
        return LEFT + (WIDTH - LEFT - RIGHT) * (min(max(value, low), high) - low) / (high - low)

    def at_y(self, value):
        low, high = self.y
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (min(max(value, low), high) - low) / (high - low)

    def curve(self, points, colour):
        path = " ".join(f"{self.at_x(x):.1f},{self.at_y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')

    def mark(self, x, text):
        at = self.at_x(x)
        self.parts.append(f'<line class="axis" stroke-dasharray="4 3" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" '
                          f'y2="{HEIGHT - BOTTOM}"/><text x="{at + 4:.1f}" y="{TOP + 12}">{text}</text>')

    def legend(self, names, top=False):
        x = WIDTH - RIGHT - 205
        for row, (colour, name) in enumerate(names):
            y = TOP + 4 + 18 * row if top else HEIGHT - BOTTOM - 14 - 18 * (len(names) - 1 - row)
            self.parts.append(f'<rect x="{x}" y="{y - 9}" width="14" height="10" fill="{colour}"/>'
                              f'<text x="{x + 20}" y="{y}">{name}</text>')

    def write(self, path):
        path.write_text("\n".join([*self.parts, "</svg>"]) + "\n")


def ticks(low, high):
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 6)
    value, found = math.ceil(low / step) * step, []
    while value <= high + step / 1e6:
        found.append(round(value, 10))
        value += step
    return found


def log_ticks(low, high):
    return [v for d in range(-6, 7) for v in (10.0 ** d, 2 * 10.0 ** d, 5 * 10.0 ** d) if low <= v <= high]


def cumulative(values):
    values = sorted(values)
    return [(value, (i + 1) / len(values)) for i, value in enumerate(values)]


def draw_cumulative(path, scenarios, field, title, label, x, log_x):
    plot = Plot(title, label, x, (0, 1), log_x, percent_y=True)
    for policy, colour in COLOURS.items():
        plot.curve(cumulative([s[policy][field] for s in scenarios]), colour)
    plot.legend([(COLOURS[p], NAMES[p]) for p in COLOURS])
    plot.write(path)


def draw_trace(path, rows):
    top = max(float(row[f"{policy}_rate"]) for row in rows for policy in COLOURS)
    plot = Plot("One job: storage gets slower after two minutes (samples/s)", "seconds", (0, len(rows)),
                (0, top * 1.3))
    plot.mark(120, "storage slower")
    for policy, colour in COLOURS.items():
        plot.curve([(float(row["second"]), float(row[f"{policy}_rate"])) for row in rows], colour)
    plot.legend([(COLOURS[p], NAMES[p]) for p in COLOURS], top=True)
    plot.write(path)


def draw_multi(path, multi):
    plot = Plot("Several jobs on one node", "rate / rate of the best settings within an equal split", (0.6, 2),
                (0, 1), percent_y=True)
    lines = ((2, "least", "#c0671b", "2 jobs: the one that gets least"),
             (3, "least", "#7a5bb5", "3 jobs: the one that gets least"),
             (2, "total", "#1a7f5a", "2 jobs: mean"), (3, "total", "#2a6fb0", "3 jobs: mean"))
    for jobs, field, colour, _ in lines:
        plot.curve(cumulative([m[field] for m in multi if m["jobs"] == jobs]), colour)
    plot.legend([(colour, name) for _, _, colour, name in lines])
    plot.write(path)


def draw_all(folder, scenarios, multi, rows):
    folder.mkdir(parents=True, exist_ok=True)
    draw_cumulative(folder / "regret.svg", scenarios, "regret", "Scenarios with at most this regret",
                    "1 - rate / rate of the best static setting, worst phase", (0.001, 1), True)
    draw_cumulative(folder / "cost.svg", scenarios, "cost_ratio", "Scenarios with at most this cost",
                    "CPU and memory / those of the cheapest static setting within 2 % of the best", (0.9, 20), True)
    draw_trace(folder / "trace.svg", rows)
    draw_multi(folder / "several.svg", multi)
