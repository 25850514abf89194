/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures that stay right at any zoom: what falls into one pixel is averaged, never left out. */

/* Steps over [from, to) us, summed up in columns: shares, the mean and the longest step. */
function stepColumns(from, to, n) {
	const shares = SHARES.map(() => new Float64Array(n));
	const weight = new Float64Array(n), wall = new Float64Array(n), longest = new Float64Array(n);
	const scale = n / (to - from);
	for (let i = stepAt(from); i < steps.n && steps.begin[i] < to; i++) {
		const x0 = Math.max(0, (steps.begin[i] - from) * scale), x1 = Math.min(n, (steps.end[i] - from) * scale);
		const length = (steps.end[i] - steps.begin[i]) || 1;
		for (let c = Math.floor(x0); c < x1; c++) {
			const part = Math.min(x1, c + 1) - Math.max(x0, c);
			weight[c] += part;
			wall[c] += part * length / data.merged;
			longest[c] = Math.max(longest[c], length / data.merged);
			for (let s = 0; s < SHARES.length; s++)
				shares[s][c] += part * steps.share[s][i] / length;
		}
	}
	return { shares, weight, wall, longest };
}

/* One row of pixels of a lane over [from, to): colours mixed by the time they have in the pixel. */
function lanePixels(lane, from, to, n, colours) {
	const sum = new Float32Array(n * 4), pixels = new ImageData(n, 1);
	const scale = n / (to - from);
	for (let i = segmentAt(lane, from); i < lane.n && lane.begin[i] < to; i++) {
		const x0 = Math.max(0, (lane.begin[i] - from) * scale), x1 = Math.min(n, (lane.end[i] - from) * scale);
		const colour = colours[lane.state[i]];
		for (let c = Math.floor(x0); c < x1; c++) {
			const part = Math.min(x1, c + 1) - Math.max(x0, c);
			sum[4 * c] += part * colour[0];
			sum[4 * c + 1] += part * colour[1];
			sum[4 * c + 2] += part * colour[2];
			sum[4 * c + 3] += part;
		}
	}
	for (let c = 0; c < n; c++) {
		const weight = sum[4 * c + 3];
		if (!weight)
			continue;
		for (let k = 0; k < 3; k++)
			pixels.data[4 * c + k] = sum[4 * c + k] / weight;
		pixels.data[4 * c + 3] = 255 * Math.min(1, weight);
	}
	return pixels;
}

/* Index of the first of `ends` that is behind at. */
function firstBehind(ends, n, at) {
	let low = 0, high = n;
	while (low < high) {
		const middle = (low + high) >> 1;
		if (ends[middle] <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

function stepAt(us) {
	return firstBehind(steps.end, steps.n, us);
}

function segmentAt(lane, us) {
	return firstBehind(lane.end, lane.n, us);
}

const steps = (function decode() {
	const width = 2 + SHARES.length, n = data.steps.length / width;
	const out = { n, begin: new Float64Array(n), end: new Float64Array(n), share: SHARES.map(() => new Float64Array(n)) };
	for (let i = 0; i < n; i++) {
		out.begin[i] = data.steps[i * width];
		out.end[i] = data.steps[i * width + 1];
		for (let s = 0; s < SHARES.length; s++)
			out.share[s][i] = data.steps[i * width + 2 + s];
	}
	return out;
})();

const lanes = data.lanes.map((from) => {
	const n = from.segments.length / 3;
	const lane = { name: from.name, role: from.role, tid: from.tid, n, begin: new Float64Array(n), end: new Float64Array(n), state: new Uint8Array(n) };
	let at = 0;
	for (let i = 0; i < n; i++) {
		lane.begin[i] = at + from.segments[3 * i];
		at = lane.end[i] = lane.begin[i] + from.segments[3 * i + 1];
		lane.state[i] = from.segments[3 * i + 2];
	}
	return lane;
});
