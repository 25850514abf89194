/* SPDX-License-Identifier: Apache-2.0 */
#include "client/protocol.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "client/diesel.h"
#include "lib/utf8.h"

static const struct {
	size_t bytes;
	size_t n_fds;
} shapes[WIRE_N_TYPES] = {
    [WIRE_ERROR] = {sizeof(struct wire_error), 0},
    [WIRE_HELLO] = {sizeof(struct wire_hello), 0},
    [WIRE_HELLO_REPLY] = {sizeof(struct wire_hello), 0},
    [WIRE_OPEN_DATASET] = {sizeof(struct wire_open_dataset), 2},
    [WIRE_DATASET_REPLY] = {sizeof(struct wire_dataset_reply), 1},
    [WIRE_OPEN_SESSION] = {sizeof(struct wire_open_session), 0},
    [WIRE_SESSION_REPLY] = {sizeof(struct wire_session_reply), 2},
    [WIRE_SEEK] = {sizeof(struct wire_seek), 0},
    [WIRE_ASK] = {sizeof(struct wire_ask), 0},
    [WIRE_SEEK_REPLY] = {sizeof(struct wire_seek_reply), 0},
    [WIRE_SEGMENT] = {sizeof(struct wire_segment), 0},
    [WIRE_SEGMENT_REPLY] = {sizeof(struct wire_segment), 1},
    [WIRE_STOP] = {sizeof(struct wire_plain), 0},
    [WIRE_STOP_REPLY] = {sizeof(struct wire_plain), 0},
    [WIRE_STATUS] = {sizeof(struct wire_plain), 0},
    [WIRE_STATUS_REPLY] = {sizeof(struct wire_status_reply), 1},
    [WIRE_KICK] = {sizeof(struct wire_plain), 0},
    [WIRE_JOBS] = {sizeof(struct wire_plain), 0},
    [WIRE_WHY] = {sizeof(struct wire_why), 0},
    [WIRE_SET] = {sizeof(struct wire_set), 0},
    [WIRE_CODEC] = {sizeof(struct wire_codec), 0},
    [WIRE_CODEC_REPLY] = {sizeof(struct wire_codec), 0},
    [WIRE_SUBSET] = {sizeof(struct wire_subset), 0},
    [WIRE_SUBSET_REPLY] = {sizeof(struct wire_plain), 0},
    [WIRE_FETCHER] = {sizeof(struct wire_plain), 0},
    [WIRE_FETCHER_REPLY] = {sizeof(struct wire_fetcher_reply), 1},
    [WIRE_FETCH] = {sizeof(struct wire_fetch), 0},
    [WIRE_FETCHED] = {sizeof(struct wire_fetched), 0},
    [WIRE_ORIGIN] = {sizeof(struct wire_origin), 0},
    [WIRE_ORIGIN_REPLY] = {sizeof(struct wire_plain), 0},
    [WIRE_FIELD] = {sizeof(struct wire_field), 0},
    [WIRE_FIELD_REPLY] = {sizeof(struct wire_plain), 0},
    [WIRE_RESIDENTS] = {sizeof(struct wire_plain), 0},
    [WIRE_RESIDENTS_REPLY] = {sizeof(struct wire_residents_reply), 2},
};

void protocol_init(union wire_message *message, enum wire_type type)
{
	memset(message, 0, sizeof(*message));
	message->header.type = (uint32_t)type;
	message->header.bytes = (uint16_t)shapes[type].bytes;
}

static bool sequence_ok(const struct wire_header *h)
{
	bool is_numbered = h->type != WIRE_HELLO && h->type != WIRE_HELLO_REPLY && h->type != WIRE_KICK &&
			   h->type != WIRE_ASK && h->type != WIRE_FETCH && h->type != WIRE_FETCHED;

	return h->type == WIRE_ERROR || is_numbered == (h->sequence != 0);
}

static bool text_ok(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

uint32_t protocol_agree(const struct wire_hello *theirs)
{
	uint32_t least = theirs->least ? theirs->least : theirs->version;
	uint32_t version = theirs->version < WIRE_VERSION ? theirs->version : WIRE_VERSION;

	/* Only the newest version that an end supports has a revision; older versions have been released. */
	if ((version == theirs->version ? theirs->revision : 0) !=
	    (version == WIRE_VERSION ? WIRE_REVISION : 0))
		version--;
	return version >= least && version >= WIRE_VERSION_LEAST && version <= theirs->version ? version : 0;
}

bool protocol_origin_ok(const char *text, size_t size)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t length = strnlen(text, size);

	return length < size && strspn(text, allowed) == length;
}

static bool origin_ok(const struct wire_origin *m)
{
	return protocol_origin_ok(m->slurm_job, sizeof(m->slurm_job)) &&
	       protocol_origin_ok(m->account, sizeof(m->account)) &&
	       protocol_origin_ok(m->pod, sizeof(m->pod)) &&
	       protocol_origin_ok(m->pod_namespace, sizeof(m->pod_namespace));
}

bool protocol_cluster_ok(const char *name)
{
	size_t left = strnlen(name, WIRE_CLUSTER_BYTES);

	if (left == WIRE_CLUSTER_BYTES)
		return false;
	while (left > 0) {
		uint32_t code;
		size_t n = utf8_decode(name, left, &code);

		if (!n || code < 0x20 || (code >= 0x7f && code < 0xa0))
			return false;
		name += n;
		left -= n;
	}
	return true;
}

/* Returns true if the request is valid for a session without an order (DIESEL_ASKED). */
static bool asked_ok(const struct wire_open_session *m)
{
	return (m->flags & ~(uint32_t)DIESEL_WARM) == DIESEL_ASKED &&
	       (m->flags & DIESEL_WARM ? m->rank == 0 || m->rank < m->lanes
				       : m->world == 1 && m->rank == 0 && m->lanes <= 1) &&
	       m->stride == 1 && m->batch <= WIRE_ASK_SAMPLES && m->epoch == 0 && m->start == 0 &&
	       m->drift == 0 && m->subset_samples == 0 && m->recipe.kind == RECIPE_NONE;
}

static bool ask_ok(const struct wire_ask *m)
{
	if (m->n_samples < 1 || m->n_samples > WIRE_ASK_SAMPLES ||
	    (m->ahead > WIRE_ASK_AHEAD && m->ahead != WIRE_ASK_FEW))
		return false;
	for (uint32_t i = m->n_samples; i < WIRE_ASK_SAMPLES; i++) {
		if (m->samples[i])
			return false;
	}
	return true;
}

static bool open_session_ok(const struct wire_open_session *m)
{
	return (m->flags & ~WIRE_KNOWN_FLAGS) == 0 && m->world >= 1 && m->rank < m->world && m->batch >= 1 &&
	       m->batch <= WIRE_BATCH_MAX && m->stride >= 1 && m->offset < m->stride &&
	       m->window_chunks <= WIRE_WINDOW_MAX && m->slots <= WIRE_SLOTS_MAX &&
	       m->lanes <= WIRE_LANES_MAX && m->drift <= WIRE_DRIFT_MAX &&
	       text_ok(m->group, sizeof(m->group)) && protocol_cluster_ok(m->cluster) &&
	       (!m->cluster[0] || m->world > 1) && m->nodes <= m->world && recipe_check(&m->recipe) == NULL &&
	       (!(m->flags & DIESEL_VIEWS) || m->recipe.kind == RECIPE_NONE) &&
	       (!(m->flags & (DIESEL_ASKED | DIESEL_WARM)) || asked_ok(m));
}

static bool codec_ok(const struct wire_codec *m)
{
	static const uint32_t none[RECIPE_MAX_DIMENSIONS];
	bool is_reply = m->header.type == WIRE_CODEC_REPLY;

	if (m->reserved || recipe_check_name(&m->codec))
		return false;
	return is_reply
		   ? recipe_check_output(m->type, &m->codec) == NULL
		   : !m->type && !m->codec.n_dimensions && !memcmp(m->codec.dimensions, none, sizeof(none));
}

static bool session_reply_ok(const struct wire_session_reply *m)
{
	return m->n_slots >= 2 && m->n_buffers >= m->n_slots && m->batch >= 1 && m->batch <= WIRE_BATCH_MAX &&
	       m->window_chunks >= 1 && m->slot_bytes > 0 && m->fits <= 1 &&
	       text_ok(m->notice, sizeof(m->notice));
}

/* Does not check values: the daemon does, and explains errors in words. */
static bool set_ok(const struct wire_set *m)
{
	static const struct wire_setting unused;
	uint32_t seen = 0;

	if (m->n_settings < 1 || m->n_settings > WIRE_SETTINGS_MAX || m->reserved != 0)
		return false;
	for (uint32_t i = 0; i < WIRE_SETTINGS_MAX; i++) {
		const struct wire_setting *s = &m->settings[i];

		if (i >= m->n_settings) {
			if (memcmp(s, &unused, sizeof(unused)) != 0)
				return false;
			continue;
		}
		if (s->key < 1 || s->key >= WIRE_N_SETTINGS ||
		    (s->flags && s->flags != WIRE_SETTING_AUTO && s->flags != WIRE_SETTING_UNTIL_RESTART) ||
		    (s->flags == WIRE_SETTING_AUTO && s->value) || (seen & 1u << s->key))
			return false;
		seen |= 1u << s->key;
	}
	return true;
}

static bool fetch_ok(const struct wire_fetch *m)
{
	return m->bytes <= WIRE_LANDING_BYTES && m->landing < WIRE_LANDINGS && m->offset <= m->size &&
	       m->bytes <= m->size - m->offset && text_ok(m->object, sizeof(m->object));
}

static bool fields_ok(const union wire_message *m)
{
	switch ((enum wire_type)m->header.type) {
	case WIRE_ERROR: return m->error.code < 0 && text_ok(m->error.text, sizeof(m->error.text));
	case WIRE_HELLO: /* the receiver checks the version, and replies with a text */
	case WIRE_HELLO_REPLY: return m->hello.magic == WIRE_MAGIC;
	case WIRE_OPEN_SESSION: return open_session_ok(&m->open_session);
	case WIRE_SESSION_REPLY: return session_reply_ok(&m->session_reply);
	case WIRE_ASK: return ask_ok(&m->ask);
	case WIRE_SEGMENT: return m->segment.bytes == 0 && m->segment.reserved == 0;
	case WIRE_SEGMENT_REPLY: return m->segment.bytes > 0;
	case WIRE_WHY: return m->why.max >= 1 && m->why.max <= WIRE_WHY_MAX && m->why.reserved == 0;
	case WIRE_CODEC:
	case WIRE_CODEC_REPLY: return codec_ok(&m->codec);
	case WIRE_SET: return set_ok(&m->set);
	case WIRE_ORIGIN: return origin_ok(&m->origin);
	case WIRE_FIELD: return m->field.name[0] && text_ok(m->field.name, sizeof(m->field.name));
	case WIRE_OPEN_DATASET:
		return (m->open_dataset.flags & ~WIRE_DATASET_FETCHED) == 0 && m->open_dataset.reserved == 0;
	case WIRE_FETCHER_REPLY:
		return m->fetcher_reply.bytes == (uint64_t)WIRE_LANDINGS * WIRE_LANDING_BYTES;
	case WIRE_FETCH: return fetch_ok(&m->fetch);
	case WIRE_FETCHED:
		return m->fetched.result <= 0 && m->fetched.landing < WIRE_LANDINGS &&
		       text_ok(m->fetched.text, sizeof(m->fetched.text));
	case WIRE_SUBSET: /* the receiver checks the part, because it knows the length of the subset */
	case WIRE_SUBSET_REPLY:
	case WIRE_ORIGIN_REPLY:
	case WIRE_FIELD_REPLY:
	case WIRE_DATASET_REPLY:
	case WIRE_SEEK:
	case WIRE_SEEK_REPLY:
	case WIRE_STOP:
	case WIRE_STOP_REPLY:
	case WIRE_STATUS:
	case WIRE_STATUS_REPLY:
	case WIRE_KICK:
	case WIRE_FETCHER:
	case WIRE_RESIDENTS:
	case WIRE_RESIDENTS_REPLY:
	case WIRE_JOBS: return true;
	case WIRE_N_TYPES: break;
	}
	return false;
}

int protocol_check(const union wire_message *message, size_t bytes, size_t n_fds)
{
	if (bytes < sizeof(message->header) || message->header.bytes != bytes)
		return -EPROTO;
	if (message->header.type >= WIRE_N_TYPES)
		return -EPROTO;
	if (bytes != shapes[message->header.type].bytes || n_fds != shapes[message->header.type].n_fds)
		return -EPROTO;
	return sequence_ok(&message->header) && fields_ok(message) ? 0 : -EPROTO;
}
