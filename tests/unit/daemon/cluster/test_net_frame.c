/* SPDX-License-Identifier: Apache-2.0 */
/* Parses peers' messages in pieces of any size, and refuses invalid ones. */
#include "tests/support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cluster/net_address.h"
#include "daemon/cluster/net_frame.h"

struct stream {
	uint8_t data[4096];
	size_t bytes;
};

static void put(struct stream *s, const void *data, size_t bytes)
{
	assert_true(s->bytes + bytes <= sizeof(s->data));
	memcpy(s->data + s->bytes, data, bytes);
	s->bytes += bytes;
}

static void put_hello(struct stream *s, const char *from, uint32_t version)
{
	struct net_hello hello;

	net_hello_fill(&hello, from, "b", 7);
	hello.version = version;
	put(s, &hello, sizeof(hello));
}

static void put_frame(struct stream *s, enum net_kind kind, int32_t code, uint64_t bytes, uint64_t value)
{
	const struct net_frame f = {
	    .kind = (uint16_t)kind, .id = 5, .code = code, .bytes = bytes, .value = value};

	put(s, &f, sizeof(f));
}

/* Feeds the stream in pieces of this length. text: h, f and the bytes of pieces. Returns 1 if it ends within
 * a message. */
static int parse(const struct stream *s, size_t piece, char *text, struct error *err)
{
	struct net_parser p = {.have = 0};
	struct net_event event;
	size_t n = 0;
	int r = 0;

	for (size_t at = 0; at < s->bytes && r >= 0; at += piece) {
		const uint8_t *data = s->data + at;
		size_t bytes = s->bytes - at < piece ? s->bytes - at : piece;

		while ((r = net_parse(&p, &data, &bytes, &event, err)) > 0) {
			if (event.kind == NET_EVENT_BYTES)
				memcpy(text + n, event.data, event.bytes);
			else
				text[n] = event.kind == NET_EVENT_HELLO ? 'h' : 'f';
			n += event.kind == NET_EVENT_BYTES ? event.bytes : 1;
		}
	}
	text[n] = '\0';
	return r < 0 ? r : net_parser_is_within(&p);
}

TEST(in_any_pieces)
{
	struct stream s = {.bytes = 0};
	struct error err = ERROR_INIT;
	char text[4096];

	put_hello(&s, "a", NET_VERSION);
	put_frame(&s, NET_PING, 0, 0, 0);
	put_frame(&s, NET_PIECE, 0, 10, 0);
	put(&s, "0123456789", 10);
	put_frame(&s, NET_END, 0, 10, 0x1234);
	put_frame(&s, NET_REFUSAL, -ENOENT, 0, 0);
	for (size_t piece = 1; piece <= s.bytes; piece++) {
		assert_int_equal(parse(&s, piece, text, &err), 0);
		assert_string_equal(text, "hff0123456789ff");
	}
	s.bytes -= 1;
	assert_int_equal(parse(&s, 100, text, &err), 1);
}

static void refused(const struct stream *s, int code, const char *says)
{
	struct error err = ERROR_INIT;
	char text[4096];

	assert_int_equal(parse(s, s->bytes, text, &err), code);
	assert_non_null(strstr(err.text, says));
}

TEST(hellos_that_are_none)
{
	static const char http[sizeof(struct net_hello)] = "GET / HTTP/1.1\r\n";
	struct stream other = {.bytes = 0}, version = {.bytes = 0}, name = {.bytes = 0},
		      endless = {.bytes = 0};

	put(&other, http, sizeof(http));
	refused(&other, -EPROTO, "not a dieseld");
	put_hello(&version, "a", NET_VERSION + 1);
	refused(&version, -EPROTONOSUPPORT, "version 2");
	put_hello(&name, "a b", NET_VERSION);
	refused(&name, -EPROTO, "name");
	put_hello(&endless, "a", NET_VERSION);
	memset(endless.data + offsetof(struct net_hello, to), 'x', REGISTRY_NAME_BYTES);
	refused(&endless, -EPROTO, "name");
}

TEST(frames_that_are_none)
{
	static const struct {
		int kind;
		int32_t code;
		uint64_t bytes, value;
	} wrong[] = {
	    {0, 0, 0, 0},
	    {NET_PONG + 1, 0, 0, 0},
	    {NET_QUESTION, 0, 0, 0},
	    {NET_QUESTION, 0, NET_CHUNK_MAX + 1, 0},
	    {NET_QUESTION, 0, 10, 1},
	    {NET_QUESTION, -1, 10, 0},
	    {NET_REFUSAL, 0, 0, 0},
	    {NET_REFUSAL, 5, 0, 0},
	    {NET_REFUSAL, -100000, 0, 0},
	    {NET_PIECE, 0, 0, 0},
	    {NET_PIECE, 0, NET_PIECE_BYTES + 1, 0},
	    {NET_END, 1, 0, 0},
	    {NET_PING, 0, 1, 0},
	    {NET_PONG, 0, 0, 1},
	    {NET_CANCEL, -1, 0, 0},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct stream s = {.bytes = 0};

		put_hello(&s, "a", NET_VERSION);
		put_frame(&s, (enum net_kind)wrong[i].kind, wrong[i].code, wrong[i].bytes, wrong[i].value);
		refused(&s, -EPROTO, "invalid frame");
	}
}

TEST(fields_without_use_are_zero)
{
	struct net_frame f = {.kind = NET_PING, .id = 1};
	struct stream s = {.bytes = 0};

	f.chunk.bytes[15] = 1;
	put_hello(&s, "a", NET_VERSION);
	put(&s, &f, sizeof(f));
	refused(&s, -EPROTO, "invalid frame");
}

TEST(groups_as_digits)
{
	struct registry_group_id text = {.text = "00ff10deadbeef00aabbccddeeff0123"};
	static const uint8_t bytes[] = {0x00, 0xff, 0x10, 0xde, 0xad, 0xbe, 0xef, 0x00,
					0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x01, 0x23};
	struct net_group_id id;

	assert_int_equal(net_group_id_parse(&text, &id), 0);
	assert_memory_equal(&id, bytes, sizeof(bytes));
	text.text[31] = 'g';
	assert_int_equal(net_group_id_parse(&text, &id), -EINVAL);
	text.text[3] = '\0';
	assert_int_equal(net_group_id_parse(&text, &id), -EINVAL);
}

TEST(addresses_are_numeric_with_a_port)
{
	static const char *const right[] = {"127.0.0.1:7700", "[::1]:1", "10.1.2.3:65535", "[fd00::1]:7700"};
	static const char *const wrong[] = {
	    "",      "127.0.0.1",  "127.0.0.1:",     "127.0.0.1:70000", "localhost:1",
	    "[::1]", "::1:7700",   "[127.0.0.1]:1",  "[::1:1",          "127.1:1",
	    "[]:1",  "1.2.3.4:1 ", "[fe80::1%lo]:1", "127.0.0.1:-1"};
	struct net_address a;
	char text[NET_ADDRESS_BYTES];

	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
		assert_int_equal(net_address_parse(right[i], &a), 0);
		net_address_format(&a, text);
		assert_string_equal(text, right[i]);
		assert_int_equal(net_address_is_loopback(&a), i < 2);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(net_address_parse(wrong[i], &a), -EINVAL);
	assert_int_equal(net_address_parse("0.0.0.0:5", &a), 0);
	assert_true(net_address_is_any(&a));
	assert_false(net_address_is_loopback(&a));
}
