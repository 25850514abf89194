/* SPDX-License-Identifier: Apache-2.0 */
/* What-if curves and the flame graph. */
(function whatIf() {
	const AXES = {
		cache: ["Dataset in memory", (x) => percent(x)], workers: ["Worker processes", (x) => String(x)],
		storage: ["Storage bandwidth", (x) => x + "x"], device: ["Device speed", (x) => x + "x"],
		size: ["Bytes a sample", (x) => x + "x"], cores: ["Cores", (x) => String(x)],
	};
	const W = 210, H = 128, LEFT = 30, BOTTOM = 20, TOP = 6, RIGHT = 8;
	const box = document.getElementById("curves");
	if (!box)
		return;
	let most = 1.2;
	for (const curve of Object.values(data.curves))
		for (let i = 0; i < curve.points.length; i += 6)
			most = Math.max(most, curve.points[i + 1] || 0, curve.points[i + 3] || 0);
	most = Math.ceil(most * 5) / 5;

	function draw(name, curve) {
		const points = [];
		for (let i = 0; i < curve.points.length; i += 6)
			points.push(curve.points.slice(i, i + 6));
		const low = points[0][0], high = points[points.length - 1][0];
		const spread = name !== "cache" && name !== "workers" && name !== "cores" && low > 0 ? Math.log : (v) => v; /* factors: halves and doubles alike */
		const x = (v) => LEFT + (spread(v) - spread(low)) / ((spread(high) - spread(low)) || 1) * (W - LEFT - RIGHT);
		const y = (v) => H - BOTTOM - v / most * (H - BOTTOM - TOP);
		const known = points.filter((p) => p[2] !== null && p[3] !== null);
		const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": AXES[name][0] + ": predicted speed-up" });
		for (const v of [0, 1, most]) {
			picture.append(svg("line", { x1: LEFT, x2: W - RIGHT, y1: y(v), y2: y(v), stroke: "var(--line)", "stroke-dasharray": v === 1 ? "3 3" : "none" }));
			picture.append(svg("text", { x: LEFT - 5, y: y(v) + 4, "text-anchor": "end" }, v === 0 ? "0" : +v.toFixed(1) + "x"));
		}
		if (known.length > 1)
			picture.append(svg("path", { fill: "var(--device)", opacity: 0.22, d: "M" + known.map((p) => `${x(p[0])},${y(p[3])}`).join("L")
				+ "L" + known.slice().reverse().map((p) => `${x(p[0])},${y(p[2])}`).join("L") + "Z" }));
		picture.append(svg("path", { fill: "none", stroke: "var(--device)", "stroke-width": 2, d: "M" + points.map((p) => `${x(p[0])},${y(p[1])}`).join("L") }));
		for (const p of points) {
			const dot = svg("circle", { cx: x(p[0]), cy: y(p[1]), r: 3, fill: "var(--device)" });
			picture.append(dot);
		}
		if (curve.here !== null && curve.here >= low && curve.here <= high) {
			const at = x(curve.here);
			picture.append(svg("circle", { cx: at, cy: y(1), r: 6, fill: "none", stroke: "var(--ink)", "stroke-width": 2 }));
			if (at > LEFT + 40 && at < W - RIGHT - 40)
				picture.append(svg("text", { x: at, y: H - 4, "text-anchor": "middle", style: "fill:var(--ink)" }, AXES[name][1](curve.here)));
		}
		picture.append(svg("text", { x: LEFT, y: H - 4 }, AXES[name][1](low)));
		picture.append(svg("text", { x: W - RIGHT, y: H - 4, "text-anchor": "end" }, AXES[name][1](high)));
		picture.addEventListener("pointermove", (event) => {
			const at = (event.clientX - picture.getBoundingClientRect().left) / picture.getBoundingClientRect().width * W;
			const p = points.reduce((best, q) => Math.abs(x(q[0]) - at) < Math.abs(x(best[0]) - at) ? q : best);
			tip.show(event.clientX, event.clientY, AXES[name][0] + " " + AXES[name][1](p[0]), [
				[null, p[1].toFixed(2) + "x the steps/s" + (p[2] === null ? "" : " (" + p[2].toFixed(2) + " to " + p[3].toFixed(2) + ")")],
				["fetch", "fetch stall " + percent(p[4] || 0)], ["prep", "prep stall " + percent(p[5] || 0)]]);
		});
		picture.addEventListener("pointerleave", () => tip.hide());
		return element("div", { class: "curve" }, element("h3", {}, AXES[name][0]), picture);
	}
	for (const name of Object.keys(AXES))
		if (data.curves[name] && data.curves[name].points.length > 6)
			box.append(draw(name, data.curves[name]));
})();

(function flame() {
	const box = document.getElementById("flame"), HEIGHT = 20, LEAST = 0.0015;
	if (!box || !data.stacks.length)
		return;
	const root = { name: "all", value: 0, children: new Map() };
	for (let i = 0; i < data.stacks.length; i += 2) {
		let node = root;
		root.value += data.stacks[i + 1];
		for (const name of data.stacks[i].split(";")) {
			if (!node.children.has(name))
				node.children.set(name, { name, value: 0, children: new Map(), parent: node });
			node = node.children.get(name);
			node.value += data.stacks[i + 1];
		}
	}
	/* Python, kernel and native code in different tones; within one the name decides. */
	function colour(name) {
		let hash = 0;
		for (const c of name)
			hash = (hash * 31 + c.codePointAt(0)) & 0xffff;
		const hue = /\.py:/.test(name) ? 205 : /^Linux\b|^\[/.test(name) ? 280 : 32;
		return `hsl(${hue + hash % 16 - 8} ${62 + hash % 13}% ${66 + hash % 11}%)`;
	}
	const graph = element("div", { class: "flame", role: "group", "aria-label": "Flame graph" });
	/* What all stacks share, from the program's start to the loop of the worker, is left above. */
	let zoomed = root;
	for (let only; (only = [...zoomed.children.values()].sort((a, b) => b.value - a.value)[0]) && only.value > 0.97 * root.value;)
		zoomed = only;
	function depth(node) {
		let most = 0;
		for (const child of node.children.values())
			if (child.value >= LEAST * zoomed.value) /* thinner ones are not drawn */
				most = Math.max(most, 1 + depth(child));
		return most;
	}
	function frame(node, left, width, level) {
		if (width < LEAST)
			return;
		const box2 = element("div", { tabindex: width > 0.02 ? "0" : "-1", role: "button" }, width > 0.012 ? node.name : "");
		box2.style.cssText = `left:${100 * left}%;width:${100 * width}%;top:${level * HEIGHT}px;background:${colour(node.name)}`;
		const text = node.name + ": " + percent(node.value / root.value) + ", " + node.value + " samples";
		box2.setAttribute("aria-label", text);
		box2.addEventListener("pointermove", (event) => tip.show(event.clientX, event.clientY, node.name,
			[[null, percent(node.value / root.value) + " of the samples (" + node.value + ")"]]));
		box2.addEventListener("pointerleave", () => tip.hide());
		function choose() {
			zoomed = zoomed === node && node.parent ? node.parent : node;
			draw();
		}
		box2.addEventListener("click", choose);
		box2.addEventListener("keydown", (event) => event.key === "Enter" && choose());
		graph.append(box2);
		let at = left;
		for (const child of [...node.children.values()].sort((a, b) => b.value - a.value)) {
			frame(child, at, width * child.value / node.value, level + 1);
			at += width * child.value / node.value;
		}
	}
	function draw() {
		graph.replaceChildren();
		graph.style.height = (depth(zoomed) + 1) * HEIGHT + "px";
		frame(zoomed, 0, 1, 0);
	}
	box.append(element("p", { class: "hint" }, "Width is CPU time; from the outermost function down. Click a frame to enlarge it, click the top one to go back."), graph);
	draw();
})();
