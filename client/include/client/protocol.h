/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The wire protocol between libdiesel and dieseld: one message per datagram on a SOCK_SEQPACKET Unix socket.
 * Messages are fixed structs in the machine's byte order: both ends are on one machine, and only
 * little-endian machines build this. Descriptors go by SCM_RIGHTS. docs/reference/protocol.md has the
 * conversation; client/ring.h the shared memory.
 *
 *   client                                        dieseld
 *   HELLO (magic, version)                    ->  HELLO_REPLY, or ERROR -EPROTO
 *   OPEN_DATASET + fds directory, snapshot    ->  DATASET_REPLY + fd: sealed memory copy of the snapshot
 *   CODEC (name, options)                     ->  CODEC_REPLY (what comes out of a sample)
 *   SUBSET (samples of the next session)      ->  SUBSET_REPLY
 *   ORIGIN (who runs the job)                 ->  ORIGIN_REPLY
 *   FIELD (field that is decoded)             ->  FIELD_REPLY
 *   OPEN_SESSION                              ->  SESSION_REPLY + fds: control, batches
 *   ASK (samples of a batch)                  ->  no reply
 *   SEEK                                      ->  SEEK_REPLY (generation of the batches from now on)
 *   SEGMENT (id)                              ->  SEGMENT_REPLY + fd: the chunk segment
 *   RESIDENTS                                 ->  RESIDENTS_REPLY + fds: table of the chunks in memory, and a
 *                                                 byte per chunk that tells the daemon which ones are read
 *   KICK (a slot came free)                   ->  no reply
 *   STOP                                      ->  STOP_REPLY: nothing more is produced, leases stay
 *   STATUS                                    ->  STATUS_REPLY + fd: JSON text
 *   JOBS                                      ->  STATUS_REPLY + fd: JSON text
 *   WHY (job, how many)                       ->  STATUS_REPLY + fd: JSON text
 *   SET (job, settings)                       ->  STATUS_REPLY + fd: JSON text; all settings or none
 *   any                                       ->  ERROR (code, one line)
 *
 * A process that reads a dataset's chunks for the daemon (docs/reference/protocol.md, "Fetchers") asks one
 * question, and then answers:
 *
 *   FETCHER (after OPEN_DATASET)              ->  FETCHER_REPLY + fd: landing memory
 *   FETCHED (id, result)                      <-  FETCH (id, object, range)
 *
 * Requests are answered in order, and every reply repeats the sequence number of its request: a client
 * accepts no other reply. HELLO, KICK, ASK, FETCH and FETCHED have number 0. A client that leaves more than a
 * few replies unread is cut off. A connection serves one dataset and at most one session; what it holds ends
 * with it. HELLO, its reply and the ERROR to it keep their layout in every version, so that two versions can
 * agree on one, or report the mismatch. In place of `sequence`, earlier versions had the upper half of
 * `bytes`, which was always zero.
 *
 * protocol_check() decides whether bytes from outside are a message. Everything else may rely on it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/recipe.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the structs in shared memory are little-endian");

#define WIRE_MAGIC 0x4c534944u /* "DISL" */

/* One number per release that changes the protocol, not per change (docs/reference/protocol.md, Versions).
 * Each end also supports the number of the previous minor release. */
#define WIRE_VERSION       8u
#define WIRE_VERSION_LEAST 7u
/* Number of protocol changes since WIRE_VERSION was raised; 0 in a release. Builds between releases with
 * different revisions use the previous, released version, and so never misread each other's messages. */
#define WIRE_REVISION 0u

#define WIRE_MAX_FDS       2
#define WIRE_TEXT_BYTES    448
#define WIRE_BATCH_MAX     (1u << 20) /* samples per batch */
#define WIRE_WINDOW_MAX    (1u << 20) /* chunks per window */
#define WIRE_LANES_MAX     (1u << 16)
#define WIRE_DRIFT_MAX     (1u << 16)
#define WIRE_SLOTS_MAX     64u
#define WIRE_KNOWN_FLAGS   63u /* enum diesel_session_flag */
#define WIRE_SUBSET_WORDS  512
#define WIRE_GROUP_BYTES   32
#define WIRE_CLUSTER_BYTES 64
#define WIRE_ASK_SAMPLES   64u
#define WIRE_ASK_AHEAD     64u /* chunks */
#define WIRE_ASK_FEW       UINT32_MAX
#define WIRE_WHY_MAX       1000
#define WIRE_SETTINGS_MAX  16
#define WIRE_OBJECT_BYTES  48
#define WIRE_CACHE_MAX     (UINT64_C(1) << 50) /* bytes */

enum wire_type {
	WIRE_ERROR = 0,
	WIRE_HELLO = 1,
	WIRE_HELLO_REPLY = 2,
	WIRE_OPEN_DATASET = 3,
	WIRE_DATASET_REPLY = 4,
	WIRE_OPEN_SESSION = 5,
	WIRE_SESSION_REPLY = 6,
	WIRE_SEEK = 7,
	WIRE_SEEK_REPLY = 8,
	WIRE_SEGMENT = 9,
	WIRE_SEGMENT_REPLY = 10,
	WIRE_STOP = 11,
	WIRE_STOP_REPLY = 12,
	WIRE_STATUS = 13,
	WIRE_STATUS_REPLY = 14,
	WIRE_KICK = 15,
	WIRE_JOBS = 16,
	WIRE_WHY = 17,
	WIRE_SET = 18,
	WIRE_SUBSET = 19,
	WIRE_SUBSET_REPLY = 20,
	WIRE_ASK = 21,
	WIRE_CODEC = 22,
	WIRE_CODEC_REPLY = 23,
	WIRE_FETCHER = 24,
	WIRE_FETCHER_REPLY = 25,
	WIRE_FETCH = 26,
	WIRE_FETCHED = 27,
	WIRE_ORIGIN = 28, /* since version 8 */
	WIRE_ORIGIN_REPLY = 29,
	WIRE_FIELD = 30, /* since version 8 */
	WIRE_FIELD_REPLY = 31,
	WIRE_RESIDENTS = 32, /* since version 8 */
	WIRE_RESIDENTS_REPLY = 33,
	WIRE_N_TYPES,
};

struct wire_header {
	uint32_t type;     /* enum wire_type */
	uint16_t bytes;    /* length of the whole message */
	uint16_t sequence; /* number of the request, repeated in its reply: 1 to 65535, then 1 again */
};

struct wire_error {
	struct wire_header header;
	int32_t code; /* negative errno */
	uint32_t reserved;
	char text[WIRE_TEXT_BYTES]; /* one line, terminated */
};

struct wire_hello { /* also the reply */
	struct wire_header header;
	uint32_t magic;
	uint32_t version;  /* the highest that the client speaks; in the reply, the one in force */
	uint32_t least;    /* lowest version supported; 0: only `version` (clients before version 8) */
	uint32_t revision; /* WIRE_REVISION of `version` */
};

struct wire_open_dataset {
	struct wire_header header;
	uint64_t version; /* dataset version that the client requires (a session is opened again); 0: any */
	uint32_t flags;   /* WIRE_DATASET_FETCHED */
	uint32_t reserved;
};

/* The chunks are not in the directory: processes of the client's user read them (FETCHER). Only that user can
 * read such a dataset, whoever may read the directory. */
#define WIRE_DATASET_FETCHED 1u

struct wire_dataset_reply {
	struct wire_header header;
	uint64_t version;
	uint64_t snapshot_bytes;
};

/*
 * A part of the subset (dataset/subset.h) that the connection's session is to serve. Parts that are not sent
 * are zero.
 */
struct wire_subset {
	struct wire_header header;
	uint64_t part;                     /* words[0] is word part * WIRE_SUBSET_WORDS of the subset */
	uint64_t words[WIRE_SUBSET_WORDS]; /* zero beyond the end of the dataset */
};

struct wire_open_session {
	struct wire_header header;
	uint64_t seed;
	uint64_t epoch;
	uint64_t first_batch;
	uint64_t subset_samples; /* samples in the subset that was sent; 0: none sent, serve all */
	uint32_t flags;          /* enum diesel_session_flag */
	uint32_t rank, world;
	uint32_t batch;
	uint32_t stride, offset;
	uint32_t window_chunks; /* 0: the daemon's default */
	uint32_t slots; /* number of batches that the client intends to hold at a time, roughly; 0: a few */
	struct recipe recipe;         /* processing of the samples by the daemon */
	char group[WIRE_GROUP_BYTES]; /* name of the group of sessions that get the same batches; terminated,
					 "" for no group */
	char cluster[WIRE_CLUSTER_BYTES]; /* name of the job on all of its nodes; "": it shares with no other
					     node. protocol_cluster_ok() */
	uint32_t nodes;                   /* number of nodes that the job runs on; 0: not known */
	uint32_t start;        /* samples of `epoch` that all ranks have consumed (dataset/shuffle.h) */
	uint32_t lanes, drift; /* parameters of the order; 0 lanes: 1. 1/drift of the chunks is dealt again in
				  each epoch */
};

struct wire_codec { /* also the reply */
	struct wire_header header;
	uint32_t type; /* enum recipe_type; 0 in the request */
	uint32_t reserved;
	struct recipe_codec codec; /* no dimensions in the request */
};

struct wire_session_reply {
	struct wire_header header;
	uint64_t n_batches;
	uint64_t slot_bytes; /* size of a batch buffer (ring.h) */
	uint32_t n_slots;
	uint32_t n_buffers;     /* number of batch buffers in the memory, at least n_slots */
	uint32_t window_chunks; /* the window in force: the order depends on it */
	uint32_t item_bytes;    /* size of items of packed batches; 0: batches are views */
	uint32_t batch;         /* maximum number of items in a slot */
	uint32_t fits;          /* 1: all of the dataset fits in the cache, with what other sessions need */
	char notice[240];       /* terminated; "": no notice */
};

/*
 * The next batch of a session with DIESEL_ASKED. The number of requests in progress and batches held must not
 * exceed the session's slots.
 */
struct wire_ask {
	struct wire_header header;
	uint64_t index; /* index of the batch: grows by 1 from the session's first_batch on */
	uint32_t n_samples;
	uint32_t ahead; /* further chunks, after the last sample's, that may be read, at most WIRE_ASK_AHEAD;
			   WIRE_ASK_FEW: only these samples are needed, not the rest of their chunks */
	uint64_t samples[WIRE_ASK_SAMPLES]; /* zero beyond n_samples */
};

struct wire_seek {
	struct wire_header header;
	uint64_t epoch;
	uint64_t batch;
};

struct wire_seek_reply {
	struct wire_header header;
	uint32_t generation;
	uint32_t reserved;
};

struct wire_segment { /* also the reply */
	struct wire_header header;
	uint64_t bytes; /* 0 in the request */
	uint32_t segment;
	uint32_t reserved;
};

/*
 * Origin of the next session's job, from the client's environment: only for metrics and the log, never for
 * decisions. Terminated, and protocol_origin_ok(); "": not known.
 */
#define WIRE_ORIGIN_BYTES 64
#define WIRE_POD_BYTES    256

struct wire_origin {
	struct wire_header header;
	char slurm_job[WIRE_ORIGIN_BYTES];
	char account[WIRE_ORIGIN_BYTES]; /* account of Slurm */
	char pod[WIRE_POD_BYTES];
	char pod_namespace[WIRE_ORIGIN_BYTES];
};

/* The field to which the next session's recipe applies. Samples then have fields, and batches have the other
 * fields as views (ring.h). */
#define WIRE_FIELD_BYTES 256

struct wire_field {
	struct wire_header header;
	char name[WIRE_FIELD_BYTES]; /* terminated, not "" */
};

struct wire_residents_reply {
	struct wire_header header;
	uint64_t n_chunks; /* entries of the table, and bytes of the uses (client/residents.h) */
};

struct wire_plain { /* FETCHER, SUBSET_REPLY, ORIGIN_REPLY, FIELD_REPLY, RESIDENTS, STOP, STOP_REPLY, STATUS,
		     * KICK, JOBS */
	struct wire_header header;
};

struct wire_status_reply {
	struct wire_header header;
	uint64_t bytes;
};

struct wire_why {
	struct wire_header header;
	uint64_t job; /* 0: all jobs */
	uint32_t max; /* number of newest decisions, 1 to WIRE_WHY_MAX */
	uint32_t reserved;
};

/* Settings that SET can change. Values are never renumbered: the daemon's history holds them. */
enum wire_setting_key {
	WIRE_SET_CACHE = 1, /* bytes; the first four settings pin a knob, of one job or (cache too) of all */
	WIRE_SET_PREFETCH = 2,
	WIRE_SET_WORKERS = 3,
	WIRE_SET_CLIENT_WORKERS = 4,
	WIRE_SET_TUNE = 5,      /* enum wire_tune; job must be 0 for this key and all below */
	WIRE_SET_CACHE_MAX = 6, /* bytes */
	WIRE_SET_CACHE_MIN = 7,
	WIRE_SET_WORKERS_MAX = 8,
	WIRE_SET_CLIENT_WORKERS_MAX = 9,
	WIRE_SET_PREFETCH_MAX = 10,
	WIRE_SET_DECODED_CACHE = 11, /* bytes; pins a knob */
	WIRE_SET_DECODED_CACHE_MAX = 12,
	WIRE_SET_READ_WEIGHT = 13, /* for one job; job must not be 0 */
	WIRE_SET_READ_LIMIT = 14,  /* bytes per second; 0: no limit */
	WIRE_SET_READ_OPS_LIMIT = 15,
	WIRE_N_SETTINGS,
};

/* The landing memory: WIRE_LANDINGS pieces of WIRE_LANDING_BYTES. */
#define WIRE_LANDINGS      8u
#define WIRE_LANDING_BYTES (4u << 20)

struct wire_fetcher_reply {
	struct wire_header header;
	uint64_t bytes; /* size of the landing memory */
};

/* A range of a chunk's object to read into the landing memory. */
struct wire_fetch {
	struct wire_header header;
	uint64_t offset;  /* offset in the object */
	uint32_t bytes;   /* at most WIRE_LANDING_BYTES; 0: only a check of access and of `size` */
	uint32_t landing; /* which piece, below WIRE_LANDINGS; also the number of this order */
	uint64_t size;    /* size that the whole object must have */
	char object[WIRE_OBJECT_BYTES]; /* name of the object, terminated */
};

struct wire_fetched {
	struct wire_header header;
	int32_t result; /* 0 or a negative errno */
	uint32_t landing;
	char text[WIRE_TEXT_BYTES]; /* one line, terminated; "" after a successful read */
};

enum wire_tune { WIRE_TUNE_OFF, WIRE_TUNE_ON, WIRE_TUNE_DRY_RUN, WIRE_N_TUNES };

#define WIRE_READ_WEIGHT 100 /* read weight of a job for which nobody set one */

#define WIRE_SETTING_AUTO          1u /* revokes a setting: a pin, or a limit set while running */
#define WIRE_SETTING_UNTIL_RESTART 4u /* since version 8: the setting is not saved for the next start */

struct wire_setting {
	uint32_t key;   /* enum wire_setting_key, each at most once per message */
	uint32_t flags; /* one of WIRE_SETTING_*, or 0; AUTO: value is 0 */
	uint64_t value;
};

struct wire_set {
	struct wire_header header;
	uint64_t job; /* 0: all jobs, including future ones */
	uint32_t n_settings;
	uint32_t reserved;
	struct wire_setting settings[WIRE_SETTINGS_MAX]; /* zero from n_settings on */
};

union wire_message {
	struct wire_header header;
	struct wire_error error;
	struct wire_hello hello;
	struct wire_open_dataset open_dataset;
	struct wire_dataset_reply dataset_reply;
	struct wire_subset subset;
	struct wire_origin origin;
	struct wire_field field;
	struct wire_open_session open_session;
	struct wire_codec codec;
	struct wire_session_reply session_reply;
	struct wire_ask ask;
	struct wire_seek seek;
	struct wire_seek_reply seek_reply;
	struct wire_segment segment;
	struct wire_residents_reply residents_reply;
	struct wire_plain plain;
	struct wire_status_reply status_reply;
	struct wire_why why;
	struct wire_set set;
	struct wire_fetcher_reply fetcher_reply;
	struct wire_fetch fetch;
	struct wire_fetched fetched;
};

_Static_assert(sizeof(struct wire_header) == 8, "wire");
_Static_assert(sizeof(struct wire_error) == 16 + WIRE_TEXT_BYTES, "wire");
_Static_assert(sizeof(struct wire_hello) == 24, "wire");
_Static_assert(sizeof(struct wire_open_dataset) == 24, "wire");
_Static_assert(sizeof(struct wire_dataset_reply) == 24, "wire");
_Static_assert(sizeof(struct wire_subset) == 16 + 8 * WIRE_SUBSET_WORDS, "wire");
_Static_assert(sizeof(struct wire_origin) == 8 + 3 * WIRE_ORIGIN_BYTES + WIRE_POD_BYTES, "wire");
_Static_assert(sizeof(struct wire_field) == 8 + WIRE_FIELD_BYTES, "wire");
_Static_assert(sizeof(struct wire_open_session) == 72 + 992, "wire");
_Static_assert(sizeof(struct wire_codec) == 16 + 512, "wire");
_Static_assert(sizeof(struct wire_session_reply) == 288, "wire");
_Static_assert(sizeof(struct wire_ask) == 24 + 8 * WIRE_ASK_SAMPLES, "wire");
_Static_assert(sizeof(struct wire_seek) == 24, "wire");
_Static_assert(sizeof(struct wire_seek_reply) == 16, "wire");
_Static_assert(sizeof(struct wire_segment) == 24, "wire");
_Static_assert(sizeof(struct wire_residents_reply) == 16, "wire");
_Static_assert(sizeof(struct wire_status_reply) == 16, "wire");
_Static_assert(sizeof(struct wire_why) == 24, "wire");
_Static_assert(sizeof(struct wire_set) == 24 + 16 * WIRE_SETTINGS_MAX, "wire");
_Static_assert(sizeof(struct wire_fetcher_reply) == 16, "wire");
_Static_assert(sizeof(struct wire_fetch) == 32 + WIRE_OBJECT_BYTES, "wire");
_Static_assert(sizeof(struct wire_fetched) == 16 + WIRE_TEXT_BYTES, "wire");

/* Starts a message: zeroed, with type and length set. type < WIRE_N_TYPES. */
void protocol_init(union wire_message *message, enum wire_type type);

/* Returns the version that both ends support; 0: none. */
uint32_t protocol_agree(const struct wire_hello *theirs);

/* Returns true if the text may be in a WIRE_ORIGIN: terminated, with only letters, digits and "._-". "" is
 * fine. */
bool protocol_origin_ok(const char *text, size_t size);

/* Returns true if the name is valid for a job: terminated UTF-8 without control characters. "" is fine. */
bool protocol_cluster_ok(const char *name);

/*
 * Returns 0 if `bytes` bytes that came with n_fds descriptors are a well-formed message, else -EPROTO. A
 * well-formed message has a known type, the exact length and the right number of descriptors. Every field is
 * within its range, texts are terminated, and the reserved fields of SEGMENT, WHY, SET and CODEC are zero. It
 * has a sequence number exactly where one belongs; ERROR, which can answer any message, may or may not have
 * one.
 */
int protocol_check(const union wire_message *message, size_t bytes, size_t n_fds);
