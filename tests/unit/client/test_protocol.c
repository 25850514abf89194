/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "client/diesel.h"
#include "client/protocol.h"

static size_t fds_of(enum wire_type type)
{
	switch (type) {
	case WIRE_OPEN_DATASET:
	case WIRE_RESIDENTS_REPLY:
	case WIRE_SESSION_REPLY: return 2;
	case WIRE_DATASET_REPLY:
	case WIRE_FETCHER_REPLY:
	case WIRE_SEGMENT_REPLY:
	case WIRE_STATUS_REPLY: return 1;
	case WIRE_ERROR:
	case WIRE_HELLO:
	case WIRE_HELLO_REPLY:
	case WIRE_OPEN_SESSION:
	case WIRE_ASK:
	case WIRE_SEEK:
	case WIRE_SEEK_REPLY:
	case WIRE_SEGMENT:
	case WIRE_STOP:
	case WIRE_STOP_REPLY:
	case WIRE_STATUS:
	case WIRE_KICK:
	case WIRE_JOBS:
	case WIRE_WHY:
	case WIRE_SET:
	case WIRE_SUBSET:
	case WIRE_SUBSET_REPLY:
	case WIRE_CODEC:
	case WIRE_CODEC_REPLY:
	case WIRE_FETCHER:
	case WIRE_FETCH:
	case WIRE_FETCHED:
	case WIRE_ORIGIN:
	case WIRE_ORIGIN_REPLY:
	case WIRE_FIELD:
	case WIRE_FIELD_REPLY:
	case WIRE_RESIDENTS:
	case WIRE_N_TYPES: break;
	}
	return 0;
}

static void make_valid(union wire_message *m, enum wire_type type)
{
	protocol_init(m, type);
	m->header.sequence = type != WIRE_HELLO && type != WIRE_HELLO_REPLY && type != WIRE_KICK &&
				     type != WIRE_ASK && type != WIRE_FETCH && type != WIRE_FETCHED
				 ? 65535
				 : 0;
	if (type == WIRE_FETCHER_REPLY)
		m->fetcher_reply.bytes = (uint64_t)WIRE_LANDINGS * WIRE_LANDING_BYTES;
	if (type == WIRE_FIELD)
		strcpy(m->field.name, "image");
	if (type == WIRE_ERROR)
		m->error.code = -ENOENT;
	if (type == WIRE_HELLO || type == WIRE_HELLO_REPLY)
		m->hello.magic = WIRE_MAGIC;
	if (type == WIRE_OPEN_SESSION) {
		m->open_session.world = 1;
		m->open_session.batch = 1;
		m->open_session.stride = 1;
	}
	if (type == WIRE_SESSION_REPLY) {
		m->session_reply.n_slots = m->session_reply.n_buffers = 3;
		m->session_reply.batch = 1;
		m->session_reply.window_chunks = 1;
		m->session_reply.slot_bytes = 4096;
	}
	if (type == WIRE_ASK)
		m->ask.n_samples = 1;
	if (type == WIRE_CODEC || type == WIRE_CODEC_REPLY)
		strcpy(m->codec.codec.name, "wav");
	if (type == WIRE_CODEC_REPLY) {
		m->codec.type = RECIPE_FLOAT32;
		m->codec.codec.n_dimensions = 1;
		m->codec.codec.dimensions[0] = 16000;
	}
	if (type == WIRE_SEGMENT_REPLY)
		m->segment.bytes = 4096;
	if (type == WIRE_WHY)
		m->why.max = WIRE_WHY_MAX;
	if (type == WIRE_SET) {
		m->set.n_settings = 2;
		m->set.settings[0] = (struct wire_setting){.key = WIRE_SET_CACHE, .value = 1};
		m->set.settings[1] =
		    (struct wire_setting){.key = WIRE_SET_PREFETCH_MAX, .flags = WIRE_SETTING_AUTO};
	}
}

TEST(each_type_has_its_size_and_descriptors)
{
	for (enum wire_type type = 0; type < WIRE_N_TYPES; type++) {
		union wire_message m;
		size_t bytes;

		make_valid(&m, type);
		bytes = m.header.bytes;
		assert_int_equal(protocol_check(&m, bytes, fds_of(type)), 0);
		assert_int_equal(protocol_check(&m, bytes - 1, fds_of(type)), -EPROTO);
		assert_int_equal(protocol_check(&m, bytes, fds_of(type) + 1), -EPROTO);
		/* A reply without a number could answer any request. */
		m.header.sequence = !m.header.sequence;
		assert_int_equal(protocol_check(&m, bytes, fds_of(type)), type == WIRE_ERROR ? 0 : -EPROTO);
		make_valid(&m, type);
		m.header.bytes++;
		assert_int_equal(protocol_check(&m, bytes, fds_of(type)), -EPROTO);
		assert_int_equal(protocol_check(&m, bytes + 1, fds_of(type)), -EPROTO);
	}
}

TEST(a_header_must_be_whole_and_known)
{
	union wire_message m = {0};

	for (size_t n = 0; n <= sizeof(m.header); n++)
		assert_int_equal(protocol_check(&m, n, 0), -EPROTO);
	m.header.type = WIRE_N_TYPES;
	m.header.bytes = 8;
	assert_int_equal(protocol_check(&m, 8, 0), -EPROTO);
	m.header.type = UINT32_MAX;
	assert_int_equal(protocol_check(&m, 8, 0), -EPROTO);
}

static uint32_t agree(uint32_t version, uint32_t least, uint32_t revision)
{
	return protocol_agree(&(struct wire_hello){
	    .magic = WIRE_MAGIC, .version = version, .least = least, .revision = revision});
}

TEST(peers_agree_on_a_version)
{
	const uint32_t newest = WIRE_VERSION, least = WIRE_VERSION_LEAST;
	/* a version that a newer release supports, too */
	const uint32_t released = WIRE_REVISION ? newest - 1 : newest;

	/* At least the previous minor release is supported. */
	assert_true(least < newest);
	assert_int_equal(agree(newest, least, WIRE_REVISION), newest);
	assert_int_equal(agree(newest - 1, 0, 0), newest - 1);
	assert_int_equal(agree(newest - 1, newest - 2, 0), newest - 1);
	assert_int_equal(agree(newest + 3, newest - 1, 0), released);
	assert_int_equal(agree(newest + 3, newest + 1, 0), 0);
	assert_int_equal(agree(newest + 1, 0, 0), 0);
	assert_int_equal(agree(least - 1, 0, 0), 0);
	assert_int_equal(agree(least - 1, 1, 0), 0);
	assert_int_equal(agree(0, 0, 0), 0);
	assert_int_equal(agree(0, 0, 1), 0); /* version 0 has no version before it */
	assert_int_equal(agree(UINT32_MAX, 1, 0), released);
	/* Builds between releases have a revision. */
	assert_int_equal(agree(newest, least, WIRE_REVISION + 1), newest - 1);
	assert_int_equal(agree(newest, newest, WIRE_REVISION + 1), 0);
	assert_int_equal(agree(least, 1, 1), 0);
	assert_int_equal(agree(newest + 1, least, 7), released);
}

TEST(origins_have_plain_characters_only)
{
	static const char *const fine[] = {"", "4711", "4711_12", "a.b-c_D9"}, *const wrong[] = {
										   " ",        "a\"b", "a\n",
										   "\xc3\xa4", "a{b",  "a,b",
										   "a/b",      "\\"};

	for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
		assert_true(protocol_origin_ok(fine[i], WIRE_ORIGIN_BYTES));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		union wire_message m;

		make_valid(&m, WIRE_ORIGIN);
		strcpy(m.origin.account, wrong[i]);
		assert_int_equal(protocol_check(&m, sizeof(m.origin), 0), -EPROTO);
		make_valid(&m, WIRE_ORIGIN);
		strcpy(m.origin.pod, wrong[i]);
		assert_int_equal(protocol_check(&m, sizeof(m.origin), 0), -EPROTO);
	}
	assert_false(protocol_origin_ok("abc", 3)); /* without a terminating NUL */
}

TEST(a_field_has_a_terminated_name)
{
	union wire_message m;

	make_valid(&m, WIRE_FIELD);
	assert_int_equal(protocol_check(&m, sizeof(m.field), 0), 0);
	memset(m.field.name, 'a', sizeof(m.field.name));
	assert_int_equal(protocol_check(&m, sizeof(m.field), 0), -EPROTO);
	m.field.name[0] = '\0';
	assert_int_equal(protocol_check(&m, sizeof(m.field), 0), -EPROTO);
}

/* Each row makes one field of a valid OPEN_SESSION invalid. */
TEST(open_session_fields)
{
	static const struct {
		size_t offset;
		uint32_t value;
	} spoil[] = {
	    {offsetof(struct wire_open_session, flags), 32},
	    {offsetof(struct wire_open_session, world), 0},
	    {offsetof(struct wire_open_session, rank), 1},
	    {offsetof(struct wire_open_session, batch), 0},
	    {offsetof(struct wire_open_session, batch), WIRE_BATCH_MAX + 1},
	    {offsetof(struct wire_open_session, stride), 0},
	    {offsetof(struct wire_open_session, offset), 1},
	    {offsetof(struct wire_open_session, window_chunks), WIRE_WINDOW_MAX + 1},
	    {offsetof(struct wire_open_session, slots), WIRE_SLOTS_MAX + 1},
	    {offsetof(struct wire_open_session, lanes), WIRE_LANES_MAX + 1},
	    {offsetof(struct wire_open_session, drift), WIRE_DRIFT_MAX + 1},
	    {offsetof(struct wire_open_session, recipe.kind), 77},
	    {offsetof(struct wire_open_session, recipe.width), 1}, /* a field of no recipe */
	};

	for (size_t i = 0; i < sizeof(spoil) / sizeof(spoil[0]); i++) {
		union wire_message m;

		make_valid(&m, WIRE_OPEN_SESSION);
		memcpy((char *)&m + spoil[i].offset, &spoil[i].value, sizeof(spoil[i].value));
		assert_int_equal(protocol_check(&m, sizeof(m.open_session), 0), -EPROTO);
	}
}

/* A job on several nodes needs a plain name, because the name goes to Redis, to terminals and to logs. */
TEST(a_job_of_several_nodes_needs_a_plain_name)
{
	static const struct {
		const char *name;
		uint32_t world;
		bool is_ok;
	} cases[] = {
	    {"", 1, true},      {"", 2, true},          {"4711.0", 2, true},    {"K\xc3\xb6ln", 2, true},
	    {"x", 1, false}, /* one rank has no other node to share with */
	    {"a\nb", 2, false}, {"\x1b[31m", 2, false}, {"\xc2\x85", 2, false}, {"\xc3", 2, false},
	    {"\xff", 2, false}, {"a\x7f", 2, false},
	};
	union wire_message m;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		make_valid(&m, WIRE_OPEN_SESSION);
		m.open_session.world = cases[i].world;
		strcpy(m.open_session.cluster, cases[i].name);
		assert_int_equal(protocol_check(&m, sizeof(m.open_session), 0) == 0, cases[i].is_ok);
	}
	make_valid(&m, WIRE_OPEN_SESSION);
	m.open_session.world = 2;
	memset(m.open_session.cluster, 'x', sizeof(m.open_session.cluster));
	assert_int_equal(protocol_check(&m, sizeof(m.open_session), 0), -EPROTO);
}

/* A session that only loads chunks into memory has no order. Its job may run on several nodes. */
TEST(a_warming_session_has_no_order)
{
	static const struct {
		uint32_t flags, rank, world;
		bool is_ok;
		const char *name;
	} cases[] = {
	    {DIESEL_ASKED, 0, 1, true, ""},
	    {DIESEL_ASKED, 0, 2, false, ""},
	    {DIESEL_ASKED | DIESEL_WARM, 0, 1, true, ""},
	    {DIESEL_ASKED | DIESEL_WARM, 0, INT32_MAX, true, "job"},
	    {DIESEL_ASKED | DIESEL_WARM, 0, 1, false, "job"},
	    {DIESEL_ASKED | DIESEL_WARM, 1, 2, false, "job"},
	    {DIESEL_WARM, 0, 1, false, ""},
	    {DIESEL_ASKED | DIESEL_WARM | DIESEL_SHUFFLE, 0, 1, false, ""},
	};
	union wire_message m;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		make_valid(&m, WIRE_OPEN_SESSION);
		m.open_session.flags = cases[i].flags;
		m.open_session.rank = cases[i].rank;
		m.open_session.world = cases[i].world;
		strcpy(m.open_session.cluster, cases[i].name);
		assert_int_equal(protocol_check(&m, sizeof(m.open_session), 0) == 0, cases[i].is_ok);
	}
}

TEST(one_wrong_codec_field_is_refused)
{
	static const struct {
		enum wire_type type;
		size_t offset;
		uint32_t value;
	} spoil[] = {
	    {WIRE_CODEC, offsetof(struct wire_codec, type), 1},
	    {WIRE_CODEC, offsetof(struct wire_codec, reserved), 1},
	    {WIRE_CODEC, offsetof(struct wire_codec, codec.name), 0},
	    {WIRE_CODEC, offsetof(struct wire_codec, codec.name), 0x41},     /* A */
	    {WIRE_CODEC, offsetof(struct wire_codec, codec.name), 0x2f2e2e}, /* ../ */
	    {WIRE_CODEC, offsetof(struct wire_codec, codec.name) + 8, 1},    /* after the terminating NUL */
	    {WIRE_CODEC, offsetof(struct wire_codec, codec.options) + 4, 0x61},
	    {WIRE_CODEC, offsetof(struct wire_codec, codec.n_dimensions), 1},
	    {WIRE_CODEC, offsetof(struct wire_codec, codec.dimensions), 1},
	    {WIRE_CODEC_REPLY, offsetof(struct wire_codec, type), RECIPE_N_TYPES},
	    {WIRE_CODEC_REPLY, offsetof(struct wire_codec, codec.n_dimensions), 2},
	    {WIRE_CODEC_REPLY, offsetof(struct wire_codec, codec.n_dimensions), 0},
	    {WIRE_CODEC_REPLY, offsetof(struct wire_codec, codec.n_dimensions), 1u << 31},
	    {WIRE_CODEC_REPLY, offsetof(struct wire_codec, codec.dimensions), (1u << 28) + 1},
	};

	for (size_t i = 0; i < sizeof(spoil) / sizeof(spoil[0]); i++) {
		union wire_message m;

		make_valid(&m, spoil[i].type);
		memcpy((char *)&m + spoil[i].offset, &spoil[i].value, sizeof(spoil[i].value));
		assert_int_equal(protocol_check(&m, sizeof(m.codec), 0), -EPROTO);
	}
}

TEST(one_wrong_control_field_is_refused)
{
	static const struct {
		size_t offset;
		uint32_t value;
	} spoil[] = {
	    {offsetof(struct wire_set, settings[0].flags), WIRE_SETTING_AUTO | WIRE_SETTING_UNTIL_RESTART},
	    {offsetof(struct wire_set, n_settings), 0},
	    {offsetof(struct wire_set, n_settings), 1}, /* setting 1 is not zero */
	    {offsetof(struct wire_set, n_settings), 3}, /* setting 2 has no key */
	    {offsetof(struct wire_set, n_settings), WIRE_SETTINGS_MAX + 1},
	    {offsetof(struct wire_set, reserved), 1},
	    {offsetof(struct wire_set, settings[0].key), 0},
	    {offsetof(struct wire_set, settings[0].key), WIRE_N_SETTINGS},
	    {offsetof(struct wire_set, settings[0].key), WIRE_SET_PREFETCH_MAX}, /* the same key twice */
	    {offsetof(struct wire_set, settings[0].flags), 2},
	    {offsetof(struct wire_set, settings[1].value), 1}, /* automatic, but with a value */
	};

	for (size_t i = 0; i < sizeof(spoil) / sizeof(spoil[0]); i++) {
		union wire_message m;

		make_valid(&m, WIRE_SET);
		memcpy((char *)&m + spoil[i].offset, &spoil[i].value, sizeof(spoil[i].value));
		assert_int_equal(protocol_check(&m, sizeof(m.set), 0), -EPROTO);
	}
	for (uint32_t max = 0; max <= WIRE_WHY_MAX + 1; max += WIRE_WHY_MAX + 1) {
		union wire_message m;

		make_valid(&m, WIRE_WHY);
		m.why.max = max;
		assert_int_equal(protocol_check(&m, sizeof(m.why), 0), -EPROTO);
	}
}

TEST(one_wrong_fetch_field_is_refused)
{
	static const struct {
		enum wire_type type;
		size_t offset;
		uint32_t value;
	} spoil[] = {
	    {WIRE_FETCH, offsetof(struct wire_fetch, landing), WIRE_LANDINGS},
	    {WIRE_FETCH, offsetof(struct wire_fetch, bytes), WIRE_LANDING_BYTES + 1},
	    {WIRE_FETCH, offsetof(struct wire_fetch, bytes), 101}, /* beyond the object's end */
	    {WIRE_FETCH, offsetof(struct wire_fetch, offset), 91},
	    {WIRE_FETCHED, offsetof(struct wire_fetched, landing), WIRE_LANDINGS},
	    {WIRE_FETCHED, offsetof(struct wire_fetched, result), 1},
	    {WIRE_OPEN_DATASET, offsetof(struct wire_open_dataset, flags), 2},
	    {WIRE_OPEN_DATASET, offsetof(struct wire_open_dataset, reserved), 1},
	};

	for (size_t i = 0; i < sizeof(spoil) / sizeof(spoil[0]); i++) {
		union wire_message m;
		size_t bytes;

		make_valid(&m, spoil[i].type);
		bytes = m.header.bytes;
		if (spoil[i].type == WIRE_FETCH) {
			m.fetch.size = 100;
			m.fetch.bytes = 10;
		}
		assert_int_equal(protocol_check(&m, bytes, fds_of(spoil[i].type)), 0);
		memcpy((char *)&m + spoil[i].offset, &spoil[i].value, sizeof(spoil[i].value));
		assert_int_equal(protocol_check(&m, bytes, fds_of(spoil[i].type)), -EPROTO);
	}
}

TEST(texts_are_terminated)
{
	union wire_message m;

	make_valid(&m, WIRE_ERROR);
	memset(m.error.text, 'x', sizeof(m.error.text));
	assert_int_equal(protocol_check(&m, sizeof(m.error), 0), -EPROTO);
	make_valid(&m, WIRE_SESSION_REPLY);
	memset(m.session_reply.notice, 'x', sizeof(m.session_reply.notice));
	assert_int_equal(protocol_check(&m, sizeof(m.session_reply), 2), -EPROTO);
	make_valid(&m, WIRE_FETCHED);
	memset(m.fetched.text, 'x', sizeof(m.fetched.text));
	assert_int_equal(protocol_check(&m, sizeof(m.fetched), 0), -EPROTO);
	make_valid(&m, WIRE_ERROR);
	m.error.code = 0;
	assert_int_equal(protocol_check(&m, sizeof(m.error), 0), -EPROTO);
	make_valid(&m, WIRE_HELLO);
	m.hello.magic++;
	assert_int_equal(protocol_check(&m, sizeof(m.hello), 0), -EPROTO);
}
