/* SPDX-License-Identifier: Apache-2.0 */
#include "net_frame.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int net_is_name(const char name[REGISTRY_NAME_BYTES])
{
	size_t length = strnlen(name, REGISTRY_NAME_BYTES);

	for (size_t i = 0; i < length; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	return length > 0 && length < REGISTRY_NAME_BYTES;
}

void net_hello_fill(struct net_hello *hello, const char *from, const char *to, uint64_t incarnation)
{
	*hello = (struct net_hello){.magic = NET_MAGIC, .version = NET_VERSION, .incarnation = incarnation};
	snprintf(hello->from, sizeof(hello->from), "%s", from);
	snprintf(hello->to, sizeof(hello->to), "%s", to);
}

static int hello_check(const struct net_hello *h, struct error *err)
{
	if (memcmp(h->magic, NET_MAGIC, sizeof(h->magic)) != 0)
		return error_set(err, -EPROTO, "the peer is not a dieseld");
	if (h->version != NET_VERSION)
		return error_set(err, -EPROTONOSUPPORT,
				 "the peer uses version %u of the protocol, this node version %u", h->version,
				 NET_VERSION);
	if (!net_is_name(h->from) || !net_is_name(h->to))
		return error_set(err, -EPROTO, "the peer's hello contains an invalid node name");
	return 0;
}

static bool is_zero(const void *data, size_t bytes)
{
	const uint8_t *at = data;

	for (size_t i = 0; i < bytes; i++)
		if (at[i])
			return false;
	return true;
}

static bool is_refusal(int32_t code)
{
	return code < 0 && code >= -4095;
}

/* Returns true if the numbers are valid for the kind of frame. */
static bool numbers_fit(const struct net_frame *f)
{
	switch ((enum net_kind)f->kind) {
	case NET_QUESTION: return f->code == 0 && f->bytes > 0 && f->bytes <= NET_CHUNK_MAX && f->value == 0;
	case NET_REFUSAL: return is_refusal(f->code) && f->bytes == 0 && f->value == 0;
	case NET_PIECE: return f->code == 0 && f->bytes > 0 && f->bytes <= NET_PIECE_BYTES && f->value == 0;
	case NET_END: return (f->code == 0 || is_refusal(f->code)) && f->bytes <= NET_CHUNK_MAX;
	case NET_CANCEL:
	case NET_PING:
	case NET_PONG: return f->code == 0 && f->bytes == 0 && f->value == 0;
	}
	return false;
}

static int frame_check(const struct net_frame *f, struct error *err)
{
	bool names = f->kind == NET_QUESTION;

	if (!numbers_fit(f) || f->reserved != 0 ||
	    (!names && (!is_zero(&f->group, sizeof(f->group)) || !is_zero(&f->chunk, sizeof(f->chunk)))))
		return error_set(err, -EPROTO, "the peer sent an invalid frame (kind %u)", f->kind);
	return 0;
}

/* Collects `whole` bytes. Returns true when they are complete. */
static bool collect(struct net_parser *p, const uint8_t **data, size_t *bytes, size_t whole)
{
	size_t n = whole - p->have;

	if (n > *bytes)
		n = *bytes;
	memcpy(p->part + p->have, *data, n);
	p->have += n;
	*data += n;
	*bytes -= n;
	if (p->have < whole)
		return false;
	p->have = 0;
	return true;
}

static int take_bytes(struct net_parser *p, const uint8_t **data, size_t *bytes, struct net_event *ret)
{
	size_t n = *bytes < p->piece_left ? *bytes : (size_t)p->piece_left;

	*ret = (struct net_event){.kind = NET_EVENT_BYTES, .data = *data, .bytes = n};
	*data += n;
	*bytes -= n;
	p->piece_left -= n;
	return 1;
}

int net_parse(struct net_parser *p, const uint8_t **data, size_t *bytes, struct net_event *ret,
	      struct error *err)
{
	int r;

	if (*bytes == 0)
		return 0;
	if (p->piece_left > 0)
		return take_bytes(p, data, bytes, ret);
	if (!collect(p, data, bytes, p->is_greeted ? sizeof(struct net_frame) : sizeof(struct net_hello)))
		return 0;
	if (!p->is_greeted) {
		ret->kind = NET_EVENT_HELLO;
		memcpy(&ret->hello, p->part, sizeof(ret->hello));
		r = hello_check(&ret->hello, err);
		p->is_greeted = r == 0;
		return r < 0 ? r : 1;
	}
	ret->kind = NET_EVENT_FRAME;
	memcpy(&ret->frame, p->part, sizeof(ret->frame));
	r = frame_check(&ret->frame, err);
	if (r == 0 && ret->frame.kind == NET_PIECE)
		p->piece_left = ret->frame.bytes;
	return r < 0 ? r : 1;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int net_group_id_parse(const struct registry_group_id *text, struct net_group_id *ret)
{
	struct net_group_id id;

	for (size_t i = 0; i < sizeof(id.bytes); i++) {
		int high = digit(text->text[2 * i]), low = high < 0 ? -1 : digit(text->text[2 * i + 1]);

		if (low < 0)
			return -EINVAL;
		id.bytes[i] = (uint8_t)(high << 4 | low);
	}
	*ret = id;
	return 0;
}
