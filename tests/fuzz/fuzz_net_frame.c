/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a peer's stream that comes in two pieces. No byte is used twice or made up, and
 * the parsed parts keep the bounds on which the rest of the module relies. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cluster/net_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t see_frame(const struct net_frame *f)
{
	if (f->kind < NET_QUESTION || f->kind > NET_PONG || f->bytes > NET_CHUNK_MAX || f->code > 0 ||
	    (f->kind == NET_REFUSAL && f->code == 0))
		abort();
	return sizeof(*f);
}

static size_t see(const struct net_event *e)
{
	switch (e->kind) {
	case NET_EVENT_HELLO:
		if (!net_is_name(e->hello.from) || !net_is_name(e->hello.to))
			abort();
		return sizeof(e->hello);
	case NET_EVENT_FRAME: return see_frame(&e->frame);
	case NET_EVENT_BYTES:
		if (e->bytes == 0 || e->bytes > NET_PIECE_BYTES)
			abort();
		return e->bytes;
	}
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t half = size ? data[0] % size : 0, seen = 0;
	struct net_parser p = {.have = 0};
	struct error err = ERROR_INIT;
	struct net_event event;
	int r = 0;

	for (int part = 0; part < 2 && r >= 0; part++) {
		const uint8_t *at = data + (part ? half : 0);
		size_t bytes = part ? size - half : half;

		while ((r = net_parse(&p, &at, &bytes, &event, &err)) > 0)
			seen += see(&event);
		if (r == 0 && bytes != 0)
			abort();
	}
	if (r < 0 && (!err.text[0] || strchr(err.text, '\n')))
		abort();
	if (r == 0 && seen + p.have != size)
		abort();
	return 0;
}
