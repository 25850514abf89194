/* SPDX-License-Identifier: Apache-2.0 */
/* Shares over time, steps and lanes on one time axis. */
(function timeline() {
	if (!steps.n && !lanes.some((lane) => lane.n))
		return void document.getElementById("time").remove();

	const GUTTER = 116, OVERVIEW = 54, STEPS = 96, LEVEL = 26, GAP = 22, AXIS = 22, ARROWS_MAX = 300;
	const canvas = element("canvas", { tabindex: "0", role: "img", "aria-label":
		"Timeline: " + (steps.n ? "shares over time, time a step, " : "") + "what each thread did. All figures are in the tables." });
	const view = { from: 0, to: data.wall };
	const rows = [];
	let width = 0, drag = null, hoverX = null;

	document.getElementById("timeline").append(canvas);

	function plot() {
		return width - GUTTER;
	}
	function xOf(us) {
		return GUTTER + (us - view.from) / (view.to - view.from) * plot();
	}
	function usOf(x) {
		return view.from + (x - GUTTER) / plot() * (view.to - view.from);
	}
	function usOfOverview(x) {
		return (x - GUTTER) / plot() * data.wall;
	}

	/* What is drawn where, from the top. */
	(function arrange() {
		let y = 14;
		function row(kind, height, extra) {
			rows.push({ kind, y, height, ...extra });
			y += height;
		}
		if (steps.n) { /* a sampled recording has none */
			row("overview", OVERVIEW);
			y += GAP + 6;
			rows.top = y;
			row("steps", STEPS);
			y += 12;
		} else {
			rows.top = y;
		}
		if (data.levels.length) {
			row("level", LEVEL);
			y += 6;
		}
		for (const lane of lanes) {
			row("lane", lane.role === 0 ? 24 : lane.role === 1 ? 18 : 10, { lane });
			y += lane.role === 0 ? 5 : 3;
		}
		rows.height = y + AXIS;
	})();

	function show(from, to) {
		const least = Math.min(data.wall, 50), length = Math.max(least, Math.min(data.wall, to - from));
		view.from = Math.max(0, Math.min(data.wall - length, from));
		view.to = view.from + length;
		draw();
	}
	function zoom(factor, around) {
		const at = around === undefined ? (view.from + view.to) / 2 : around;
		show(at - (at - view.from) * factor, at + (view.to - at) * factor);
	}
	function showSteps(first, last) {
		const begin = steps.begin[Math.max(0, first)], end = steps.end[Math.min(steps.n - 1, last)];
		show(begin - (end - begin) * 0.04, end + (end - begin) * 0.04);
	}

	function drawStack(context, row, columns, heightOf) {
		const n = columns.weight.length, step = plot() / n;
		for (let c = 0; c < n; c++) {
			if (!columns.weight[c])
				continue;
			let y = row.y + row.height;
			const full = heightOf(c);
			for (const s of STACK) {
				const h = full * columns.shares[s][c] / columns.weight[c];
				context.fillStyle = palette.shares[s];
				context.fillRect(GUTTER + c * step, y - h, step + 0.3, h);
				y -= h;
			}
		}
	}
	function label(context, text, y, size) {
		context.font = (size || 12) + "px system-ui, 'DejaVu Sans', sans-serif";
		context.fillStyle = palette.muted;
		context.textAlign = "right";
		context.textBaseline = "middle";
		context.fillText(text, GUTTER - 10, y, GUTTER - 12);
	}
	function drawOverview(context, row, n) {
		drawStack(context, row, stepColumns(0, data.wall, n), () => row.height);
		label(context, "100 %", row.y + 5);
		label(context, "shares", row.y + row.height / 2);
		label(context, "0", row.y + row.height - 5);
		const x0 = GUTTER + view.from / data.wall * plot(), x1 = GUTTER + view.to / data.wall * plot();
		context.fillStyle = palette.veil;
		context.fillRect(GUTTER, row.y, x0 - GUTTER, row.height);
		context.fillRect(x1, row.y, width - x1, row.height);
		context.strokeStyle = palette.ink;
		context.lineWidth = 1.5;
		context.strokeRect(x0, row.y - 3, Math.max(2, x1 - x0), row.height + 6);
		/* the two sides of the magnifier */
		context.lineWidth = 1;
		context.strokeStyle = palette.line;
		context.beginPath();
		context.moveTo(x0, row.y + row.height + 4);
		context.lineTo(GUTTER, row.y + row.height + GAP);
		context.moveTo(x1, row.y + row.height + 4);
		context.lineTo(width, row.y + row.height + GAP);
		context.stroke();
	}
	function drawSteps(context, row, n) {
		const columns = stepColumns(view.from, view.to, n);
		let most = 0;
		for (let c = 0; c < n; c++)
			most = Math.max(most, columns.longest[c]);
		const top = niceAbove(most) || 1, scale = row.height / top;
		drawStack(context, row, columns, (c) => scale * columns.wall[c] / columns.weight[c]);
		context.fillStyle = palette.muted;
		for (let c = 0; c < n; c++)
			if (columns.longest[c] > 1.02 * columns.wall[c] / (columns.weight[c] || 1))
				context.fillRect(GUTTER + c * plot() / n, row.y + row.height - scale * columns.longest[c], plot() / n, 1);
		if (data.warmup > view.from) {
			const x = Math.min(width, xOf(data.warmup));
			context.fillStyle = palette.ink;
			context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
			context.textAlign = "right";
			context.textBaseline = "bottom";
			if (x - GUTTER > 60)
				context.fillText("warm-up", x - 4, row.y - 1);
			context.fillRect(GUTTER, row.y - 1, x - GUTTER, 1);
			context.fillRect(x - 1, row.y - 5, 1, 9);
		}
		label(context, duration(top), row.y + 5);
		label(context, "a step", row.y + row.height / 2);
		label(context, "0", row.y + row.height - 5);
		context.strokeStyle = palette.line;
		context.strokeRect(GUTTER + 0.5, row.y + 0.5, plot() - 1, row.height);
	}
	function drawLevel(context, row) {
		let most = 1;
		for (let i = 1; i < data.levels.length; i += 2)
			most = Math.max(most, data.levels[i]);
		context.strokeStyle = palette.muted;
		context.lineWidth = 1;
		context.beginPath();
		let y = row.y + row.height, i = 0;
		const yOf = (n) => row.y + row.height - n / most * (row.height - 2);
		for (; i < data.levels.length && data.levels[i] < view.from; i += 2)
			y = yOf(data.levels[i + 1]);
		context.moveTo(GUTTER, y);
		for (; i < data.levels.length && data.levels[i] <= view.to; i += 2) {
			context.lineTo(xOf(data.levels[i]), y);
			y = yOf(data.levels[i + 1]);
			context.lineTo(xOf(data.levels[i]), y);
		}
		context.lineTo(width, y);
		context.stroke();
		label(context, "ready: 0 to " + most, row.y + row.height / 2);
	}
	function drawLane(context, row, ratio) {
		const n = Math.max(1, Math.round(plot() * ratio)), strip = document.createElement("canvas");
		strip.width = n;
		strip.height = 1;
		strip.getContext("2d").putImageData(lanePixels(row.lane, view.from, view.to, n, palette.states), 0, 0);
		context.imageSmoothingEnabled = false;
		context.drawImage(strip, 0, 0, n, 1, GUTTER, row.y, plot(), row.height);
		label(context, row.lane.name, row.y + row.height / 2, row.height > 12 ? 12 : 10);
	}
	/* Who woke whom, when few enough are seen to follow them. */
	function drawWakes(context) {
		const byLane = rows.filter((row) => row.kind === "lane"), seen = [];
		for (let i = 0; i < data.wakes.length && seen.length <= ARROWS_MAX; i += 4)
			if (data.wakes[i + 1] >= view.from && data.wakes[i] <= view.to)
				seen.push(i);
		if (seen.length > plot() / 8)
			return;
		context.strokeStyle = context.fillStyle = palette.ink;
		context.lineWidth = 1;
		for (const i of seen) {
			const from = byLane[data.wakes[i + 2]], to = byLane[data.wakes[i + 3]];
			const x0 = xOf(data.wakes[i]), x1 = xOf(data.wakes[i + 1]);
			if (!from || !to || from === to || x0 < GUTTER || x1 > width)
				continue;
			const y0 = from.y + from.height / 2, up = to.y < from.y, y1 = up ? to.y + to.height - 3 : to.y + 3;
			context.beginPath();
			context.arc(x0, y0, 1.8, 0, 7);
			context.fill();
			context.beginPath();
			context.moveTo(x0, y0);
			context.bezierCurveTo(x0 + 5, (y0 + y1) / 2, x1 - 5, (y0 + y1) / 2, x1, y1);
			context.stroke();
			context.beginPath();
			context.moveTo(x1, y1);
			context.lineTo(x1 - 3, y1 + (up ? 5 : -5));
			context.lineTo(x1 + 3, y1 + (up ? 5 : -5));
			context.fill();
		}
	}
	function drawAxis(context) {
		const length = view.to - view.from, step = niceAbove(length / Math.max(2, plot() / 110)), y = rows.height - AXIS + 4;
		context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
		context.textAlign = "center";
		context.textBaseline = "top";
		for (let us = Math.ceil(view.from / step) * step; us <= view.to; us += step) {
			context.fillStyle = palette.line;
			context.fillRect(xOf(us), rows.top, 1, y - rows.top);
			context.fillStyle = palette.muted;
			const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / 1e6))));
			context.fillText((us / 1e6).toFixed(digits) + " s", Math.min(xOf(us), width - 18), y + 3);
		}
	}

	let palette;
	function readPalette() {
		palette = {
			shares: SHARES.map((share) => cssColour(share.css)), states: STATES.map((state) => rgb(cssColour(state.css))),
			ink: cssColour("ink"), muted: cssColour("muted"), line: cssColour("line"), veil: cssColour("panel") + "b8",
		};
	}

	function draw() {
		const ratio = devicePixelRatio || 1, context = canvas.getContext("2d");
		width = canvas.parentElement.clientWidth;
		if (width <= GUTTER + 20)
			return;
		canvas.style.height = rows.height + "px";
		canvas.width = Math.round(width * ratio);
		canvas.height = Math.round(rows.height * ratio);
		context.scale(ratio, ratio);
		const n = Math.max(1, Math.round(plot() * Math.min(ratio, 2)));
		drawAxis(context);
		for (const row of rows) {
			if (row.kind === "overview")
				drawOverview(context, row, n);
			else if (row.kind === "steps")
				drawSteps(context, row, n);
			else if (row.kind === "level")
				drawLevel(context, row);
			else
				drawLane(context, row, ratio);
		}
		drawWakes(context);
		if (drag && drag.x !== undefined && drag.row !== "overview") {
			context.fillStyle = palette.ink + "22";
			context.fillRect(Math.min(drag.x0, drag.x), rows.top, Math.abs(drag.x - drag.x0), rows.height - AXIS - rows.top);
		} else if (hoverX !== null) {
			context.fillStyle = palette.ink;
			context.fillRect(hoverX, rows.top, 1, rows.height - AXIS - rows.top);
		}
	}

	function rowAt(y) {
		return rows.find((row) => y >= row.y - 2 && y <= row.y + row.height + 2);
	}
	function tellStep(us) {
		if (!steps.n)
			return { title: (us / 1e6).toFixed(3) + " s", lines: [] };
		const i = Math.min(steps.n - 1, stepAt(us)), lines = [];
		for (const s of STACK)
			if (steps.share[s][i] > 0)
				lines.push([SHARES[s].css, SHARES[s].name + " " + duration(steps.share[s][i] / data.merged)]);
		const name = data.merged > 1 ? "Steps " + (i * data.merged + 1) + " to " + (i + 1) * data.merged + ", mean" : "Step " + (i + 1);
		return { title: name + ": " + duration((steps.end[i] - steps.begin[i]) / data.merged), lines };
	}
	function tellLane(lane, us) {
		const i = segmentAt(lane, us), lines = [];
		if (i < lane.n && lane.begin[i] <= us)
			lines.push([STATES[lane.state[i]].css, STATES[lane.state[i]].name + " for " + duration(lane.end[i] - lane.begin[i])]);
		else
			lines.push([null, "not known"]);
		lines.push([null, "thread " + lane.tid + ", at " + (us / 1e6).toFixed(4) + " s"]);
		return { title: lane.name, lines };
	}
	function hover(event) {
		const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
		const row = rowAt(y);
		if (drag) {
			drag.x = Math.max(GUTTER, Math.min(width, x));
			if (drag.row === "overview")
				show(usOfOverview(x) - drag.half, usOfOverview(x) + drag.half);
			return draw();
		}
		hoverX = x >= GUTTER && row && row.kind !== "overview" ? x : null;
		if (!row || x < GUTTER) {
			tip.hide();
		} else {
			const us = row.kind === "overview" ? usOfOverview(x) : usOf(x);
			const told = row.kind === "lane" ? tellLane(row.lane, us) : tellStep(us);
			tip.show(event.clientX, event.clientY, told.title, told.lines);
		}
		draw();
	}

	canvas.addEventListener("pointermove", hover);
	canvas.addEventListener("pointerleave", () => {
		hoverX = null;
		tip.hide();
		draw();
	});
	canvas.addEventListener("pointerdown", (event) => {
		const box = canvas.getBoundingClientRect(), row = rowAt(event.clientY - box.top), x0 = event.clientX - box.left;
		if (x0 < GUTTER || !row || event.button !== 0)
			return;
		drag = { x0, row: row.kind, half: (view.to - view.from) / 2 };
		canvas.setPointerCapture(event.pointerId);
		tip.hide();
	});
	canvas.addEventListener("pointerup", () => {
		const done = drag;
		drag = null;
		if (done && done.row !== "overview" && done.x !== undefined && Math.abs(done.x - done.x0) > 4)
			show(usOf(Math.min(done.x0, done.x)), usOf(Math.max(done.x0, done.x)));
		else
			draw();
	});
	canvas.addEventListener("dblclick", () => show(0, data.wall));
	canvas.addEventListener("wheel", (event) => {
		if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY))
			return; /* the page scrolls */
		event.preventDefault();
		if (event.ctrlKey || event.metaKey)
			zoom(event.deltaY > 0 ? 1.25 : 0.8, usOf(event.clientX - canvas.getBoundingClientRect().left));
		else
			show(view.from + event.deltaX * (view.to - view.from) / plot(), view.to + event.deltaX * (view.to - view.from) / plot());
	}, { passive: false });
	canvas.addEventListener("keydown", (event) => {
		const part = (view.to - view.from) * 0.2;
		const keys = { ArrowLeft: () => show(view.from - part, view.to - part), ArrowRight: () => show(view.from + part, view.to + part),
			"+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), Home: () => show(0, data.wall) };
		if (!keys[event.key])
			return;
		event.preventDefault();
		keys[event.key]();
	});

	(function tools() {
		const byWall = [...Array(steps.n).keys()].sort((a, b) => (steps.end[a] - steps.begin[a]) - (steps.end[b] - steps.begin[b]));
		const typical = byWall[steps.n >> 1], slowest = byWall[steps.n - 1], checkpoints = steps.share[3];
		const largest = checkpoints.indexOf(Math.max(...checkpoints));
		const bar = document.getElementById("time-tools");
		function tool(text, run) {
			const button = element("button", { type: "button" }, text);
			button.addEventListener("click", run);
			bar.append(button);
		}
		tool("All", () => show(0, data.wall));
		if (steps.n) {
			tool("First steps", () => showSteps(0, 9));
			tool("Typical steps", () => showSteps(typical - 3, typical + 3));
			tool("Slowest step", () => showSteps(slowest - 1, slowest + 1));
		}
		if (checkpoints[largest] > 0)
			tool("Longest checkpoint", () => showSteps(largest - 1, largest + 1));
		tool("Zoom in", () => zoom(0.5));
		tool("Zoom out", () => zoom(2));
	})();
	(function legend() {
		const box = document.getElementById("time-legend"), seen = new Set();
		const names = { fetch: "fetching, fetch stall", prep: "preparing, prep stall", idle: "idle", starved: "without a core",
			blocked: "blocked", gpu: "waits for the GPU" };
		for (const lane of lanes)
			for (const state of lane.state)
				seen.add(STATES[state].css);
		SHARES.forEach((share, s) => steps.share[s].some((us) => us > 0) && seen.add(share.css));
		for (const css of ["device", "gpu", "fetch", "prep", "checkpoint", "compiling", "starved", "other", "idle", "blocked"])
			if (seen.has(css))
				box.append(element("span", {}, element("span", { class: "swatch " + css }), names[css] || css));
		if (data.cell)
			box.append(element("span", {}, "threads: pieces of " + duration(data.cell) + ", exact in the first, typical and slowest steps"));
	})();

	/* A link may say what to show: #t=1.5-2.25, in seconds. */
	const asked = /^#t=([\d.]+)-([\d.]+)$/.exec(location.hash);
	if (asked)
		view.from = Math.min(asked[1] * 1e6, data.wall - 50), view.to = Math.min(Math.max(asked[2] * 1e6, view.from + 50), data.wall);

	redraws.push(() => {
		readPalette();
		draw();
	});
	new ResizeObserver(draw).observe(canvas.parentElement);
	readPalette();
	draw();
})();
