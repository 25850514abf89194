/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Frames between daemons (docs/reference/protocol.md). Little endian. After a connection is made, and secured
 * if there is a key, the side that connected sends a hello, the other side answers with its own, and then
 * both send frames of one fixed size; some frames announce a payload, which follows them (enum net_kind).
 *
 * One REFUSAL or one END ends each question. The side that asks chooses the ids. Fields that a kind does not
 * use are 0.
 *
 * The parser is pure: it takes bytes in pieces of any size, and returns events.
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
/* Maximum number of open questions of one connection, in each direction. */
#define NET_MAX_QUESTIONS 64u

struct net_group_id {
	uint8_t bytes[16]; /* the 32 digits of struct registry_group_id in binary */
};

struct net_hello {
	char magic[8]; /* NET_MAGIC with its terminator */
	uint32_t version;
	uint32_t reserved0;
	uint64_t incarnation;
	char from[REGISTRY_NAME_BYTES];
	char to[REGISTRY_NAME_BYTES]; /* name that the sender expects the receiver to have */
	uint64_t reserved1;
};

/* Kinds of frames, with the fields that each has in addition to its id. */
enum net_kind {
	NET_QUESTION = 1, /* group, chunk, bytes: asks for this chunk, which has this many bytes */
	NET_REFUSAL,      /* code: why not, a negative errno */
	NET_PIECE,        /* bytes: length of the next piece of the chunk, which follows */
	NET_END, /* at the end of the chunk: code 0, bytes: its length, value: its XXH3-64. After a failure:
		    its code */
	NET_CANCEL, /* no longer wanted; ended by NET_END or NET_REFUSAL */
	NET_PING,
	NET_PONG, /* same id */
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
	NET_EVENT_BYTES, /* bytes of the piece that was announced last */
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
	uint64_t piece_left; /* remaining bytes of the piece */
	size_t have;         /* bytes of an incomplete hello or frame */
	uint8_t part[sizeof(struct net_hello)];
};

/* Parses bytes from *data, of which there are *bytes, and advances both. Returns 1: *ret is the parsed item;
 * 0: all were taken, more are needed. -EPROTO: the other side is not a peer, or violates the protocol;
 * -EPROTONOSUPPORT: it has another version. Nothing can be parsed after an error. */
int net_parse(struct net_parser *p, const uint8_t **data, size_t *bytes, struct net_event *ret,
	      struct error *err);
/* Returns true if the bytes so far end in the middle of a hello, a frame or a piece. */
static inline int net_parser_is_within(const struct net_parser *p)
{
	return p->have > 0 || p->piece_left > 0;
}

/* Converts the id from its digits. -EINVAL. */
int net_group_id_parse(const struct registry_group_id *text, struct net_group_id *ret);
/* Returns true for a valid node name: printable ASCII without blanks, terminated within the array, not empty.
 */
int net_is_name(const char name[REGISTRY_NAME_BYTES]);
