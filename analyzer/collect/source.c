/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/source.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/error.h"
#include "sampler.h"

/* One of the two is set. */
struct source {
	struct collector *collector;
	struct sampler *sampler;
};

int source_open(enum source_choice choice, const struct collector_options *options,
		struct source **ret_source, struct error *err)
{
	struct source *source = calloc(1, sizeof(*source));
	int r;

	if (!source)
		return error_set(err, -ENOMEM, "not enough memory to begin");
	if (choice == SOURCE_COLLECTOR)
		r = collector_open(options, &source->collector, err);
	else
		r = sampler_open("/proc", options->no_children, &source->sampler, err);
	if (r < 0)
		free(source);
	else
		*ret_source = source;
	return r;
}

bool source_is_sampled(const struct source *source)
{
	return source->sampler != NULL;
}

int source_launch(struct source *source, char *const argv[], const sigset_t *signals, pid_t *ret_pid,
		  struct error *err)
{
	return source->sampler ? sampler_launch(source->sampler, argv, signals, ret_pid, err)
			       : collector_launch(source->collector, argv, signals, ret_pid, err);
}

int source_attach(struct source *source, pid_t tgid, struct error *err)
{
	return source->sampler ? sampler_attach(source->sampler, tgid, err)
			       : collector_attach(source->collector, tgid, err);
}

bool source_has(const struct source *source, pid_t tgid)
{
	return source->sampler ? sampler_has(source->sampler, tgid) : collector_has(source->collector, tgid);
}

int source_poll(struct source *source, int timeout_ms, const struct collector_sink *sink)
{
	return source->sampler ? sampler_poll(source->sampler, sink)
			       : collector_poll(source->collector, timeout_ms, sink);
}

int source_fd(const struct source *source)
{
	return source->sampler ? sampler_fd(source->sampler) : collector_fd(source->collector);
}

uint64_t source_detail(struct source *source, bool on)
{
	return source->sampler ? sampler_detail(source->sampler, on)
			       : collector_detail(source->collector, on);
}

uint64_t source_alive(const struct source *source)
{
	return source->sampler ? sampler_alive(source->sampler) : collector_alive(source->collector);
}

int source_stop(struct source *source, const struct collector_sink *sink, struct error *err)
{
	return source->sampler ? sampler_stop(source->sampler, sink)
			       : collector_stop(source->collector, sink, err);
}

void source_stats_get(struct source *source, struct collector_stats *ret_stats)
{
	if (source->sampler)
		sampler_stats_get(source->sampler, ret_stats);
	else
		collector_stats_get(source->collector, ret_stats);
}

void source_close(struct source *source)
{
	if (!source)
		return;
	collector_close(source->collector);
	sampler_close(source->sampler);
	free(source);
}
