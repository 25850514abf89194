/* SPDX-License-Identifier: Apache-2.0 */
/* Start: data, colours, theme, tooltip. paint.js, timeline.js and charts.js follow in the same script. */
"use strict";
document.documentElement.classList.add("js");

const data = JSON.parse(document.getElementById("data").textContent);

/* In the order of enum analysis_share, as in data.steps. */
const SHARES = [
	{ name: "device", css: "device" }, { name: "fetch stall", css: "fetch" }, { name: "prep stall", css: "prep" },
	{ name: "checkpoint", css: "checkpoint" }, { name: "cpu starved", css: "starved" }, { name: "other", css: "other" },
	{ name: "compiling", css: "compiling" },
];
const STACK = [1, 2, 3, 6, 4, 5, 0]; /* from the bottom: what hurts stands on the base line */

/* In the order of enum lane_state. */
const STATES = [
	{ name: "device: computing", css: "device" }, { name: "waits: fetch stall", css: "fetch" },
	{ name: "waits: prep stall", css: "prep" }, { name: "writes a checkpoint", css: "checkpoint" },
	{ name: "without a core", css: "starved" }, { name: "other", css: "other" }, { name: "computing", css: "prep" },
	{ name: "fetching", css: "fetch" }, { name: "without a core", css: "starved" },
	{ name: "idle, nothing to do", css: "idle" }, { name: "blocked", css: "blocked" },
	{ name: "waits for the GPU", css: "gpu" }, { name: "compiles", css: "compiling" },
];

function cssColour(name) {
	return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function rgb(colour) {
	const full = colour.length === 4 ? colour.replace(/[0-9a-f]/gi, "$&$&") : colour;
	return [1, 3, 5].map((i) => parseInt(full.slice(i, i + 2), 16));
}

function element(tag, attributes, ...children) {
	const node = document.createElement(tag);
	for (const [key, value] of Object.entries(attributes || {}))
		node.setAttribute(key, value);
	node.append(...children);
	return node;
}

function svg(tag, attributes, ...children) {
	const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
	for (const [key, value] of Object.entries(attributes || {}))
		node.setAttribute(key, value);
	node.append(...children);
	return node;
}

function duration(us) {
	if (us < 1000)
		return us.toFixed(0) + " us";
	if (us < 1e6)
		return Number((us / 1000).toPrecision(3)) + " ms";
	if (us < 120e6)
		return Number((us / 1e6).toPrecision(3)) + " s";
	return Math.floor(us / 60e6) + " min " + Math.round((us % 60e6) / 1e6) + " s";
}

function percent(ratio) {
	return (100 * ratio).toFixed(ratio < 0.1 && ratio > 0 ? 1 : 0) + " %";
}

/* 1, 2 or 5 times a power of ten, not below the value. */
function niceAbove(value) {
	const power = 10 ** Math.floor(Math.log10(value || 1));
	return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value * 0.9999);
}

/* Text only: whatever the names are made of, they are not read as HTML. rows: [colour class or null, text]. */
const tip = {
	node: document.getElementById("tip"),
	show(x, y, title, rows) {
		this.node.replaceChildren(element("b", {}, title));
		for (const [css, text] of rows) {
			const line = element("div", {});
			if (css)
				line.append(element("span", { class: "swatch " + css }));
			line.append(text);
			this.node.append(line);
		}
		this.node.hidden = false;
		const box = this.node.getBoundingClientRect();
		this.node.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
		this.node.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18) + "px";
	},
	hide() {
		this.node.hidden = true;
	},
};

/* Everything that is drawn with colours listens here. */
const redraws = [];
function redrawAll() {
	for (const redraw of redraws)
		redraw();
}

(function theme() {
	const button = document.getElementById("theme");
	const order = ["auto", "light", "dark"];
	let at = "auto";
	try {
		at = localStorage.getItem("diesel-theme") || "auto";
	} catch { /* a page from a file may not have a store */ }
	function apply() {
		if (at === "auto")
			delete document.documentElement.dataset.theme;
		else
			document.documentElement.dataset.theme = at;
		button.textContent = "Theme: " + at;
		redrawAll();
	}
	button.addEventListener("click", () => {
		at = order[(order.indexOf(at) + 1) % order.length];
		try {
			localStorage.setItem("diesel-theme", at);
		} catch { /* as above */ }
		apply();
	});
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
	addEventListener("beforeprint", redrawAll);
	addEventListener("afterprint", redrawAll);
	apply();
})();
