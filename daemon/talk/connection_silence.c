/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that begin something and do not go on with it: to say who they are, or which samples they want. A
 * client that has said what it wants may be idle for as long as it likes. */
#include <errno.h>
#include <stdio.h>

#include "connection.h"
#include "lib/clock.h"

#define LOOK_MS 1000

/* Tells it why, in case that it still reads. */
static void give_up(struct connection *c)
{
	struct error err = ERROR_INIT;

	error_set(&err, -ETIMEDOUT,
		  c->greeted ? "the rest of the subset did not come within %d s"
			     : "no HELLO came within %d s",
		  (c->greeted ? CONNECTION_SUBSET_MS : CONNECTION_HELLO_MS) / 1000);
	(void)connection_reply_error(c, &err, -ETIMEDOUT);
	connection_cut(c, -ETIMEDOUT);
}

/* What it has said in time may still be unread, where this process did not run: then it is read by the next
 * look. */
static bool is_late(struct connection *c, uint64_t now_ns)
{
	union wire_message m;

	if (!c->due_ns || now_ns < c->due_ns)
		return false;
	if (c->overdue || transport_peek(c->fd, &m) == -EAGAIN)
		return true;
	c->overdue = true;
	return false;
}

static void on_look(uv_timer_t *timer)
{
	struct server *s = timer->data;
	uint64_t now_ns = clock_monotonic_ns();
	bool any = false;

	for (struct connection *c = s->connections, *next; c; c = next) {
		next = c->next;
		any = any || c->due_ns;
		if (is_late(c, now_ns))
			give_up(c);
	}
	if (!any)
		uv_timer_stop(timer);
}

void connection_expect(struct connection *c, uint32_t ms)
{
	struct server *s = c->server;

	c->overdue = false;
	c->due_ns = ms ? clock_monotonic_ns() + ms * NS_PER_MS : 0;
	if (ms && !uv_is_active((uv_handle_t *)&s->silence))
		uv_timer_start(&s->silence, on_look, LOOK_MS, LOOK_MS);
}
