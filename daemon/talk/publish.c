/* SPDX-License-Identifier: Apache-2.0 */
/* Tells people at other places of this node's jobs, now and then (diesel-top --nodes). */
#include <stdlib.h>

#include "cluster.h"
#include "control.h"
#include "lib/clock.h"
#include "server.h"

#define EVERY_MS 2000

static void on_publish(uv_timer_t *timer)
{
	const struct server *s = timer->data;
	double uptime_s = (double)(clock_monotonic_ns() - s->start_ns) / 1e9;
	char *text = control_report(s->control, uptime_s, REGISTRY_REPORT_BYTES);

	/* What cannot go out now is old in two seconds. */
	if (text)
		(void)cluster_publish(s->serving.cache.cluster, text);
	free(text);
}

void publish_start(struct server *s)
{
	uv_timer_init(s->loop, &s->publish);
	s->publish.data = s;
	s->publishes = true;
	uv_timer_start(&s->publish, on_publish, 0, EVERY_MS);
}

void publish_stop(struct server *s)
{
	if (!s->publishes)
		return;
	s->publishes = false;
	uv_close((uv_handle_t *)&s->publish, NULL);
	(void)cluster_publish(s->serving.cache.cluster,
			      ""); /* else its node would be taken for one that went silent */
}
