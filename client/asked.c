/* SPDX-License-Identifier: Apache-2.0 */
/* Asking for the samples of each batch. */
#include "session.h"

#include <errno.h>
#include <string.h>

_Static_assert(DIESEL_ASK_MAX == WIRE_ASK_SAMPLES, "one limit");
_Static_assert(DIESEL_ASK_FEW == WIRE_ASK_FEW, "one number");

static const struct asked_batch *asked_at(const struct diesel_session *s, uint64_t index)
{
	return &s->asked[index % RING_MAX_SLOTS];
}

static void tell(const struct diesel_session *s, uint64_t index)
{
	const struct asked_batch *a = asked_at(s, index);
	union wire_message message;

	protocol_init(&message, WIRE_ASK);
	message.ask.index = index;
	message.ask.n_samples = a->n;
	message.ask.ahead = a->ahead < WIRE_ASK_AHEAD || a->ahead == WIRE_ASK_FEW ? a->ahead : WIRE_ASK_AHEAD;
	memcpy(message.ask.samples, a->samples, a->n * sizeof(*a->samples));
	(void)transport_send(s->attachment->transport.fd, &message, NULL, 0);
}

/* If a message fails the daemon is gone, which the next wait finds out; what is asked for is told to the next
 * one, which may have fewer slots. */
void session_tell_asked(struct diesel_session *s)
{
	while (s->attachment && s->asked_told < s->asked_end &&
	       s->asked_told - s->index < s->attachment->n_slots)
		tell(s, s->asked_told++);
}

int diesel_session_ask(struct diesel_session *s, const uint64_t *samples, uint32_t n, uint32_t ahead)
{
	uint32_t n_slots = s->attachment ? s->attachment->n_slots : RING_MIN_SLOTS;
	uint32_t n_held = diesel_session_n_held(s);
	struct asked_batch *a;

	if (!s->asked || n == 0 || n > s->request.batch)
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++) {
		if (samples[i] >= s->n_samples)
			return -ERANGE;
	}
	if (s->asked_end - s->index + n_held >= n_slots)
		return -EBUSY;
	a = &s->asked[s->asked_end++ % RING_MAX_SLOTS];
	*a = (struct asked_batch){.n = n, .ahead = ahead};
	memcpy(a->samples, samples, n * sizeof(*samples));
	session_tell_asked(s);
	return 0;
}
