/* SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "feed.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/log.h"
#include "options.h"
#include "sample.h"
#include "sample_json.h"

#define ONCE_S 3.0

static void wait_until(struct feed *feed, uint64_t until_ns)
{
	for (;;) {
		uint64_t now_ns = clock_monotonic_ns(), next_ns = until_ns;

		if (now_ns >= until_ns)
			return;
		feed->ops->work(feed, now_ns, &next_ns);
		next_ns = next_ns < until_ns ? next_ns : until_ns;
		now_ns = clock_monotonic_ns();
		if (next_ns > now_ns)
			poll(NULL, 0, (int)((next_ns - now_ns) / NS_PER_MS) + 1);
	}
}

static int once(struct feed *feed, const struct options *options, struct error *err)
{
	double s = options->interval_given ? options->interval_s : ONCE_S;
	struct sample *sample = NULL;
	char *json;
	int r = feed->ops->sample(feed, FEED_WANT_ALL, clock_monotonic_ns(), &sample, err);

	if (r)
		return r;
	sample_free(sample);
	wait_until(feed, clock_monotonic_ns() + (uint64_t)(s * 1e9));
	r = feed->ops->sample(feed, FEED_WANT_ALL, clock_monotonic_ns(), &sample, err);
	if (r)
		return r;
	json = sample_to_json(sample, true);
	puts(json ? json : "");
	free(json);
	sample_free(sample);
	return 0;
}

int main(int argc, char **argv)
{
	struct options options;
	struct error err = ERROR_INIT;
	struct feed *feed = NULL;
	int r;

	setlocale(LC_CTYPE, "");
	log_init("diesel-top", LOG_LEVEL_INFO);
	r = options_parse(argc, argv, &options);
	if (r)
		return r - 1;
	r = feed_node_open(&(struct node_options){options.pids, options.n_pids, options.unprivileged}, &feed,
			   &err);
	if (!r)
		r = once(feed, &options, &err);
	if (r)
		log_error("%s", err.text);
	feed_close(feed);
	return r ? TOP_FAILED : 0;
}
