/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What daemons say to each other (docs/protocol.md). Little endian. After a connection is made, and secured
 * where there is a key, who dialled sends a hello, the other one answers with its own, and then both send
 * frames, which are all of one size; some are followed by what they announce (enum net_kind).
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
#define NET_MAX_RANGES    16384u /* of one question */

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
	/* group, chunk, bytes: give me this chunk, which has so many bytes; value: so many ranges of it
	 * alone, which follow (struct net_range); 0: all of it */
	NET_QUESTION = 1,
	NET_REFUSAL, /* code: no, a negative errno */
	NET_PIECE, /* bytes: the next ones of the chunk, or of its ranges, one after the other; they follow */
	NET_END,   /* code, bytes, value: that was all, with this XXH3-64; or code: no more comes */
	NET_CANCEL, /* no longer wanted; ended by NET_END or NET_REFUSAL as ever */
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

/* A part of a chunk, not empty. They come in the chunk's order, and do not overlap. */
struct net_range {
	uint32_t offset, bytes;
};

_Static_assert(sizeof(struct net_range) == 8, "sent");
_Static_assert(sizeof(struct net_hello) == 160, "sent");
_Static_assert(sizeof(struct net_frame) == 64, "sent");

void net_hello_fill(struct net_hello *hello, const char *from, const char *to, uint64_t incarnation);

enum net_event_kind {
	NET_EVENT_HELLO,
	NET_EVENT_FRAME,
	NET_EVENT_RANGE, /* of the question that came last */
	NET_EVENT_BYTES, /* of the piece that was announced last */
};

struct net_event {
	enum net_event_kind kind;
	struct net_hello hello;
	struct net_frame frame;
	struct net_range range;
	const uint8_t *data;
	size_t bytes;
};

struct net_parser {
	int is_greeted;
	uint64_t piece_left; /* bytes of a piece that are still to come */
	uint32_t n_ranges_left;
	uint64_t range_from, range_end; /* where the next one lies */
	size_t have;                    /* of a hello or frame that is not whole yet */
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
	return p->have > 0 || p->piece_left > 0 || p->n_ranges_left > 0;
}

/* How far an answer has come. */
struct net_walk {
	const struct net_range *ranges;
	uint32_t n_ranges; /* 0: all of the chunk */
	uint32_t at;
	uint64_t done; /* of that range, or of the chunk */
};

/* Goes on by what lies together in the chunk of the next n bytes, which there are. Returns how many these
 * are. */
size_t net_walk_next(struct net_walk *walk, size_t n, uint64_t *ret_offset);
uint64_t net_ranges_bytes(const struct net_range *ranges, uint32_t n_ranges);
/* Whether they are such as may be asked for, of a chunk of so many bytes. */
bool net_ranges_fit(const struct net_range *ranges, uint32_t n_ranges, uint64_t bytes);

/* From the digits; -EINVAL. */
int net_group_id_parse(const struct registry_group_id *text, struct net_group_id *ret);
void net_group_id_format(const struct net_group_id *id, struct registry_group_id *ret);
/* Returns true for the name of a node: printable ASCII without blanks, terminated within its room, not empty.
 */
int net_is_name(const char name[REGISTRY_NAME_BYTES]);
