/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of dieseld for tests and measurements: opens a session through libdiesel's public interface,
 * compares every batch with dataset/shuffle.h and every byte with the files that were packed, and prints
 * one JSON object. See usage().
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/diesel.h"
#include "dataset/shuffle.h"
#include "dataset/snapshot.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

static const char usage_text[] =
    "usage: daemon_probe --status | --dataset DIR [--version N] [--socket S] [--source DIR] [--batch N] "
    "[--seed N] "
    "[--epoch N] "
    "[--first N]\n"
    "  [--epochs N] [--rank N --world N] [--stride N --offset N] [--window N] [--lanes N] [--drift N]\n"
    "  [--no-shuffle] [--drop-last]\n"
    "  [--hold N] [--max-batches N] [--pause-us N] [--reconnect-ms N] [--touch] [--scribble] [--wait] "
    "[--seek E:B]\n"
    "--source: compare bytes with these files; --touch: read every byte; --scribble: write to every packed "
    "batch;\n"
    "--wait: with the last batches held, print \"holding\" and wait for end of input\n";

struct probe {
	const char *dataset, *socket, *source;
	struct diesel_session_options o;
	uint64_t epochs, max_batches;
	uint32_t hold, pause_us;
	bool touch, scribble, wait, seek, status;
	uint64_t seek_epoch, seek_batch, version;
	/* state */
	struct diesel_dataset *d;
	struct diesel_session *s;
	struct snapshot *snapshot;
	struct shuffle_plan *plan;
	uint64_t plan_epoch;
	uint32_t *chunk_samples;
	uint64_t *base, *expected;
	uint8_t *wanted; /* a sample of the source */
	size_t wanted_bytes;
	uint64_t epoch, index; /* next position expected */
	uint64_t n_batches, n_samples, n_bytes, n_bad;
	uint64_t digest, sum;
	uint64_t open_ns, first_ns, end_ns;
	void *held[64];
	uint32_t n_held;
	char last_error[512];
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("probe: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

static struct shuffle_plan *plan_for(struct probe *p, uint64_t epoch)
{
	const struct snapshot_info *info = snapshot_info(p->snapshot);
	struct shuffle_spec spec = {.chunk_samples = p->chunk_samples,
				    .n_chunks = info->n_chunks,
				    .seed = p->o.seed,
				    .epoch = epoch,
				    .window_chunks = diesel_session_window_chunks(p->s),
				    .shuffle = p->o.flags & DIESEL_SHUFFLE,
				    .rank = p->o.rank,
				    .world = p->o.world,
				    .batch = p->o.batch,
				    .lanes = p->o.lanes,
				    .drift = p->o.drift,
				    .base = p->base,
				    .drop_last = p->o.flags & DIESEL_DROP_LAST};

	if (p->plan && p->plan_epoch == epoch)
		return p->plan;
	shuffle_plan_free(p->plan);
	if (shuffle_plan_new(&spec, &p->plan) < 0)
		die("no plan");
	p->plan_epoch = epoch;
	return p->plan;
}

static void prepare_reference(struct probe *p)
{
	struct error err = ERROR_INIT;

	if (snapshot_open(p->dataset, &p->snapshot, &err) < 0)
		die("%s", err.text);
	p->chunk_samples = calloc(snapshot_info(p->snapshot)->n_chunks, sizeof(uint32_t));
	for (uint64_t i = 0; i < snapshot_info(p->snapshot)->n_chunks; i++) {
		struct snapshot_chunk chunk;

		if (snapshot_chunk_get(p->snapshot, i, &chunk) < 0)
			die("no chunk");
		p->chunk_samples[i] = chunk.n_samples;
	}
	if (p->o.lanes > 1 && snapshot_base_list(p->snapshot, &p->base) < 0)
		die("no list of chunks");
	p->expected = calloc(shuffle_max_batch(plan_for(p, p->o.epoch)), sizeof(uint64_t));
}

static void check_bytes(struct probe *p, const struct snapshot_sample *s, const uint8_t *data)
{
	char path[8192];
	_cleanup_(closep) int fd = -EBADF;

	snprintf(path, sizeof(path), "%s/%.*s", p->source, (int)s->path_length, s->path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->bytes + 1 > p->wanted_bytes) {
		p->wanted_bytes = s->bytes + 1;
		p->wanted = realloc(p->wanted, p->wanted_bytes);
	}
	if (fd < 0 || !p->wanted || read(fd, p->wanted, s->bytes + 1) != (ssize_t)s->bytes)
		die("cannot read %s", path);
	if (memcmp(p->wanted, data, s->bytes) != 0)
		die("wrong bytes of %s", path);
}

static void check_batch(struct probe *p, const struct diesel_batch *b)
{
	uint32_t n = 0;

	if (b->epoch != p->epoch || b->index != p->index)
		die("got batch %llu of epoch %llu instead of %llu of %llu", (unsigned long long)b->index,
		    (unsigned long long)b->epoch, (unsigned long long)p->index, (unsigned long long)p->epoch);
	if (shuffle_batch(plan_for(p, b->epoch), b->index, p->expected, &n) < 0 || n != b->n_items)
		die("batch %llu has %u items instead of %u", (unsigned long long)b->index, b->n_items, n);
	for (uint32_t i = 0; i < n; i++) {
		struct snapshot_sample s;

		if (b->items[i].sample != p->expected[i])
			die("sample %u of batch %llu is %llu instead of %llu", i,
			    (unsigned long long)b->index, (unsigned long long)b->items[i].sample,
			    (unsigned long long)p->expected[i]);
		(void)snapshot_sample_get(p->snapshot, p->expected[i], &s);
		if (b->items[i].label != s.class_index || b->labels[i] != s.class_index)
			die("wrong label");
		if (b->items[i].bytes != s.bytes)
			die("wrong length");
		check_bytes(p, &s, b->packed ? b->packed + (size_t)i * b->item_bytes : b->items[i].data);
		p->digest = p->digest * 1099511628211u + b->items[i].sample + 1;
	}
}

static uint64_t sum_bytes(const uint8_t *data, size_t n)
{
	uint64_t sum = 0, word;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		memcpy(&word, data + i, 8);
		sum += word;
	}
	for (; i < n; i++)
		sum += data[i];
	return sum;
}

static void touch_batch(struct probe *p, const struct diesel_batch *b)
{
	if (b->packed) {
		p->sum += sum_bytes(b->packed, (size_t)b->n_items * b->item_bytes);
		return;
	}
	for (uint32_t i = 0; i < b->n_items; i++)
		p->sum += sum_bytes(b->items[i].data, b->items[i].bytes);
}

static void hold_batch(struct probe *p, void *lease)
{
	if (p->n_held == p->hold) {
		diesel_batch_release(p->held[0]);
		memmove(p->held, p->held + 1, (p->hold - 1) * sizeof(p->held[0]));
		p->n_held--;
	}
	p->held[p->n_held++] = lease;
}

static void take_batch(struct probe *p, const struct diesel_batch *b)
{
	if (p->n_batches == 0)
		p->first_ns = clock_monotonic_ns();
	p->n_batches++;
	p->n_samples += b->n_items;
	for (uint32_t i = 0; i < b->n_items && p->source; i++)
		p->n_bytes += b->items[i].bytes;
	if (p->source)
		check_batch(p, b);
	if (p->touch)
		touch_batch(p, b);
	if (p->scribble && b->packed)
		memset(b->packed, 0xee, (size_t)b->n_items * b->item_bytes);
	if (p->pause_us)
		usleep(p->pause_us);
	hold_batch(p, b->lease);
}

static void run(struct probe *p)
{
	uint64_t epochs_left = p->epochs;

	p->index = p->o.first_batch;
	p->epoch = p->o.epoch;
	if (p->index % p->o.stride != p->o.offset)
		p->index += (p->o.stride + p->o.offset - p->index % p->o.stride) % p->o.stride;
	while (epochs_left > 0 && p->n_batches < p->max_batches) {
		struct diesel_batch b;
		int r = diesel_session_next(p->s, &b);
		const char *notice = diesel_session_notice(p->s);

		if (notice)
			fprintf(stderr, "notice: %s\n", notice);
		if (r == 1) {
			epochs_left--;
			p->epoch++;
			p->index = p->o.offset;
			continue;
		}
		if (r == -EINTR)
			continue;
		if (r == -EBADMSG || r == -EACCES || r == -ENOENT) {
			p->n_bad++;
			snprintf(p->last_error, sizeof(p->last_error), "%s", diesel_session_error(p->s));
		} else if (r < 0) {
			die("next: %s (%s)", diesel_session_error(p->s), strerror(-r));
		} else {
			take_batch(p, &b);
		}
		p->index += p->o.stride;
		if (p->seek && p->n_batches == 3) {
			p->seek = false;
			p->epoch = p->seek_epoch;
			p->index = p->seek_batch;
			if (diesel_session_seek(p->s, p->epoch, p->index) < 0)
				die("seek: %s", diesel_session_error(p->s));
		}
	}
	p->end_ns = clock_monotonic_ns();
}

/* clang-format off */
enum {
	O_DATASET = 256, O_SOCKET, O_SOURCE, O_BATCH, O_SEED, O_EPOCH, O_FIRST, O_EPOCHS, O_RANK, O_WORLD, O_STRIDE,
	O_OFFSET, O_WINDOW, O_NO_SHUFFLE, O_DROP_LAST, O_HOLD, O_MAX, O_PAUSE, O_RECONNECT, O_TOUCH, O_SCRIBBLE,
	O_WAIT, O_SEEK, O_STATUS, O_VERSION, O_LANES, O_DRIFT,
};

static const struct option options[] = {
	{"dataset", 1, 0, O_DATASET}, {"socket", 1, 0, O_SOCKET}, {"source", 1, 0, O_SOURCE}, {"batch", 1, 0, O_BATCH},
	{"seed", 1, 0, O_SEED}, {"epoch", 1, 0, O_EPOCH}, {"first", 1, 0, O_FIRST}, {"epochs", 1, 0, O_EPOCHS},
	{"rank", 1, 0, O_RANK}, {"world", 1, 0, O_WORLD}, {"stride", 1, 0, O_STRIDE}, {"offset", 1, 0, O_OFFSET},
	{"window", 1, 0, O_WINDOW}, {"no-shuffle", 0, 0, O_NO_SHUFFLE}, {"drop-last", 0, 0, O_DROP_LAST},
	{"hold", 1, 0, O_HOLD}, {"max-batches", 1, 0, O_MAX}, {"pause-us", 1, 0, O_PAUSE},
	{"reconnect-ms", 1, 0, O_RECONNECT}, {"touch", 0, 0, O_TOUCH}, {"scribble", 0, 0, O_SCRIBBLE},
	{"wait", 0, 0, O_WAIT}, {"seek", 1, 0, O_SEEK}, {"status", 0, 0, O_STATUS},
	{"version", 1, 0, O_VERSION}, {"lanes", 1, 0, O_LANES}, {"drift", 1, 0, O_DRIFT}, {0},
};
/* clang-format on */

static bool set_session_option(struct probe *p, int key, uint64_t v)
{
	switch (key) {
	case O_BATCH: p->o.batch = (uint32_t)v; return true;
	case O_SEED: p->o.seed = v; return true;
	case O_EPOCH: p->o.epoch = v; return true;
	case O_FIRST: p->o.first_batch = v; return true;
	case O_RANK: p->o.rank = (uint32_t)v; return true;
	case O_WORLD: p->o.world = (uint32_t)v; return true;
	case O_STRIDE: p->o.stride = (uint32_t)v; return true;
	case O_OFFSET: p->o.offset = (uint32_t)v; return true;
	case O_LANES: p->o.lanes = (uint32_t)v; return true;
	case O_DRIFT: p->o.drift = (uint32_t)v; return true;
	case O_WINDOW: p->o.window_chunks = (uint32_t)v; return true;
	case O_RECONNECT: p->o.reconnect_ms = (uint32_t)v; return true;
	case O_NO_SHUFFLE: p->o.flags &= ~(uint32_t)DIESEL_SHUFFLE; return true;
	case O_DROP_LAST: p->o.flags |= DIESEL_DROP_LAST; return true;
	}
	return false;
}

static void set_option(struct probe *p, int key)
{
	uint64_t v = optarg ? strtoull(optarg, NULL, 0) : 0;

	if (set_session_option(p, key, v))
		return;
	switch (key) {
	case O_DATASET: p->dataset = optarg; break;
	case O_SOCKET: p->socket = optarg; break;
	case O_SOURCE: p->source = optarg; break;
	case O_EPOCHS: p->epochs = v; break;
	case O_HOLD: p->hold = (uint32_t)v; break;
	case O_MAX: p->max_batches = v; break;
	case O_PAUSE: p->pause_us = (uint32_t)v; break;
	case O_TOUCH: p->touch = true; break;
	case O_SCRIBBLE: p->scribble = true; break;
	case O_WAIT: p->wait = true; break;
	case O_STATUS: p->status = true; break;
	case O_VERSION: p->version = v; break;
	case O_SEEK:
		p->seek = true;
		if (sscanf(optarg, "%lu:%lu", &p->seek_epoch, &p->seek_batch) != 2)
			die("--seek E:B");
		break;
	default: die("%s", usage_text);
	}
}

/* Prints the daemon's status. */
static int print_status(const char *socket)
{
	char error[512], *json;

	if (diesel_status(socket, &json, error, sizeof(error)) < 0)
		die("%s", error);
	puts(json);
	free(json);
	return 0;
}

int main(int argc, char **argv)
{
	struct probe p = {.o = {.world = 1, .stride = 1, .batch = 32, .flags = DIESEL_SHUFFLE},
			  .epochs = 1,
			  .hold = 1,
			  .max_batches = UINT64_MAX};
	char error[512] = "";
	int key, r;

	while ((key = getopt_long(argc, argv, "", options, NULL)) != -1)
		set_option(&p, key);
	if (p.status)
		return print_status(p.socket);
	if (!p.dataset || p.hold < 1 || p.hold > 64)
		die("%s", usage_text);
	p.open_ns = clock_monotonic_ns();
	r = diesel_dataset_open_version(p.dataset, p.version, p.socket, &p.d, error, sizeof(error));
	if (r == 0)
		r = diesel_session_open(p.d, &p.o, &p.s, error, sizeof(error));
	if (r < 0)
		die("%s (%d)", error, r);
	if (p.source)
		prepare_reference(&p);
	run(&p);
	if (p.wait) {
		char c;

		printf("holding\n");
		fflush(stdout);
		while (read(0, &c, 1) > 0)
			;
	}
	printf("{\"batches\": %llu, \"samples\": %llu, \"bytes\": %llu, \"bad\": %llu, \"n_batches\": %llu, "
	       "\"window\": %u, \"max_held\": %u, \"digest\": \"%016llx\", \"sum\": %llu, \"first_batch_s\": "
	       "%.4f, "
	       "\"seconds\": %.4f, "
	       "\"samples_per_s\": %.0f, \"error\": \"%s\"}\n",
	       (unsigned long long)p.n_batches, (unsigned long long)p.n_samples,
	       (unsigned long long)p.n_bytes, (unsigned long long)p.n_bad,
	       (unsigned long long)diesel_session_n_batches(p.s), diesel_session_window_chunks(p.s),
	       diesel_session_max_held(p.s), (unsigned long long)p.digest, (unsigned long long)p.sum,
	       (double)(p.first_ns - p.open_ns) / 1e9, (double)(p.end_ns - p.open_ns) / 1e9,
	       (double)p.n_samples / ((double)(p.end_ns - p.open_ns) / 1e9), p.last_error);
	diesel_session_close(p.s);
	diesel_dataset_close(p.d);
	for (uint32_t i = 0; i < p.n_held; i++)
		diesel_batch_release(p.held[i]);
	shuffle_plan_free(p.plan);
	snapshot_close(p.snapshot);
	free(p.chunk_samples);
	free(p.base);
	free(p.expected);
	free(p.wanted);
	return 0;
}
