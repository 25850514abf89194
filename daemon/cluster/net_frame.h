/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Frames between daemons (docs/reference/protocol.md). Little endian. After a connection is made, and secured
 * if there is a key, the side that connected sends a hello, the other side answers with its own, and then
 * both send frames of one fixed size; some frames announce a payload, which follows them (enum net_kind).
 *
 * Each question is ended by one REFUSAL or one END. ids are the asker's. Fields that a kind has no use for
 * are 0.
 *
 * The parser is pure: bytes in, in whatever pieces, and events out.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/chunk_id.h"
#include "dataset/registry.h"
#include "lib/error.h"

#define NET_MAGIC       "DSLPEER"
#define NET_VERSION     1u
#define NET_PIECE_BYTES (256u << 10)
#define NET_CHUNK_MAX   ((uint64_t)2 << 30)
/* Of one connection that are not ended yet, in each direction. */
#define NET_MAX_QUESTIONS 64u

struct net_group_id {
	uint8_t bytes[16]; /* as the 32 digits of struct registry_group_id say */
};

struct net_hello {
	char magic[8]; /* NET_MAGIC with its terminator */
	uint32_t version;
	uint32_t reserved0;
	uint64_t incarnation;
	char from[REGISTRY_NAME_BYTES];
	char to[REGISTRY_NAME_BYTES]; /* whom the sender takes the other one for */
	uint64_t reserved1;
};

/* With the fields that each has beside its id. */
enum net_kind {
	NET_QUESTION = 1, /* group, chunk, bytes: give me this chunk, which has so many bytes */
	NET_REFUSAL,      /* code: no, a negative errno */
	NET_PIECE,        /* bytes: the next ones of the chunk, which follow */
	NET_END,          /* code, bytes, value: that was all, with this XXH3-64; or code: no more comes */
	NET_CANCEL,       /* no longer wanted; ended by NET_END or NET_REFUSAL */
	NET_PING,
	NET_PONG, /* the same id */
};

struct net_frame {
	uint16_t kind;
	uint16_t reserved;
	int32_t code;
	uint64_t id;
	uint64_t bytes;
	uint64_t value;
	struct net_group_id group;
	struct chunk_id chunk;
};

_Static_assert(sizeof(struct net_hello) == 160, "sent");
_Static_assert(sizeof(struct net_frame) == 64, "sent");

void net_hello_fill(struct net_hello *hello, const char *from, const char *to, uint64_t incarnation);

enum net_event_kind {
	NET_EVENT_HELLO,
	NET_EVENT_FRAME,
	NET_EVENT_BYTES, /* of the piece that was announced last */
};

struct net_event {
	enum net_event_kind kind;
	struct net_hello hello;
	struct net_frame frame;
	const uint8_t *data;
	size_t bytes;
};

struct net_parser {
	int is_greeted;
	uint64_t piece_left; /* bytes of a piece that are still to come */
	size_t have;         /* of a hello or frame that is not whole yet */
	uint8_t part[sizeof(struct net_hello)];
};

/* Takes bytes from *data, of which there are *bytes. Returns 1: *ret is what they were; 0: all were taken,
 * more are needed. -EPROTO: this is no peer, or one that does not keep to the protocol; -EPROTONOSUPPORT: one
 * of another version. Nothing can be parsed after that. */
int net_parse(struct net_parser *p, const uint8_t **data, size_t *bytes, struct net_event *ret,
	      struct error *err);
/* Returns true if the bytes so far end within a hello, a frame or a piece. */
static inline int net_parser_is_within(const struct net_parser *p)
{
	return p->have > 0 || p->piece_left > 0;
}

/* From the digits; -EINVAL. */
int net_group_id_parse(const struct registry_group_id *text, struct net_group_id *ret);
/* Returns true for the name of a node: printable ASCII without blanks, terminated within its space, not
 * empty.
 */
int net_is_name(const char name[REGISTRY_NAME_BYTES]);
