/* SPDX-License-Identifier: Apache-2.0 */
/* A client's end of a connection whose other end is the test. After one failure, the connection is over. */
#include "tests/support.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "client/transport.h"

struct pair {
	struct transport transport;
	int daemon;
};

static int pair_setup(void **state)
{
	static struct pair p;
	struct timeval timeout = {.tv_usec = 20000};
	int fds[2];

	socket_pair(fds);
	setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	p = (struct pair){.transport = {.fd = fds[0]}, .daemon = fds[1]};
	*state = &p;
	return 0;
}

static int pair_teardown(void **state)
{
	struct pair *p = *state;

	transport_close(&p->transport);
	close(p->daemon);
	return 0;
}

/* Sends a reply that the client finds when it has sent its request. */
static void answer(struct pair *p, enum wire_type type, uint16_t sequence)
{
	union wire_message m;

	protocol_init(&m, type);
	m.header.sequence = sequence;
	if (type == WIRE_ERROR) {
		m.error.code = -ENOENT;
		strcpy(m.error.text, "no such thing");
	}
	assert_int_equal(transport_send(p->daemon, &m, NULL, 0), 0);
}

static int seek(struct pair *p, struct error *err)
{
	union wire_message request, reply;

	protocol_init(&request, WIRE_SEEK);
	return transport_call(&p->transport, &request, NULL, WIRE_SEEK_REPLY, &reply, NULL, err);
}

/* Asserts that the connection is over, even if the right reply has arrived by now. */
static void assert_over(struct pair *p)
{
	struct error err = ERROR_INIT;
	char byte;

	assert_int_equal(seek(p, &err), -ECONNRESET);
	assert_string_equal(err.text, "dieseld went away");
	/* The daemon sees the end, after the earlier messages. */
	while (recv(p->daemon, &byte, 1, MSG_DONTWAIT) > 0)
		;
	assert_int_equal(recv(p->daemon, &byte, 1, MSG_DONTWAIT), 0);
}

TEST_WITH(replies_are_of_their_requests, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;

	for (uint32_t i = 1; i <= UINT16_MAX + 3; i++) {
		answer(p, WIRE_SEEK_REPLY, i > UINT16_MAX ? (uint16_t)(i - UINT16_MAX) : (uint16_t)i);
		assert_int_equal(seek(p, &err), 0);
		if (i % 100 == 0) {
			union wire_message m;
			struct wire_fds fds;

			for (int k = 0; k < 100; k++)
				assert_int_equal(transport_receive(p->daemon, &m, &fds), 0);
		}
	}
}

TEST_WITH(an_error_is_an_answer, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;

	answer(p, WIRE_ERROR, 1);
	assert_int_equal(seek(p, &err), -ENOENT);
	assert_string_equal(err.text, "no such thing");
	answer(p, WIRE_SEEK_REPLY, 2);
	assert_int_equal(seek(p, &err), 0);
}

/* The error names both versions, since either program may be the one to update. */
TEST_WITH(another_protocol_is_said_with_both_versions, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;
	union wire_message m;

	protocol_init(&m, WIRE_ERROR);
	m.error.code = -EPROTO;
	strcpy(m.error.text, "dieseld 9.9 speaks protocol 9");
	assert_int_equal(transport_send(p->daemon, &m, NULL, 0), 0);
	assert_int_equal(transport_hello(&p->transport, &err), -EPROTO);
	assert_string_equal(err.text, "dieseld 9.9 speaks protocol 9 (the client is " DIESEL_VERSION ")");
}

static void hello_reply(struct pair *p, uint32_t version)
{
	union wire_message m;

	protocol_init(&m, WIRE_HELLO_REPLY);
	m.hello.magic = WIRE_MAGIC;
	m.hello.version = version;
	assert_int_equal(transport_send(p->daemon, &m, NULL, 0), 0);
}

TEST_WITH(an_older_daemon_decides_the_version, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;
	union wire_message m;
	struct wire_fds fds;

	hello_reply(p, WIRE_VERSION_LEAST);
	assert_int_equal(transport_hello(&p->transport, &err), 0);
	assert_int_equal(p->transport.version, WIRE_VERSION_LEAST);
	assert_int_equal(transport_receive(p->daemon, &m, &fds), 0);
	assert_int_equal(m.hello.version, WIRE_VERSION);
	assert_int_equal(m.hello.least, WIRE_VERSION_LEAST);
}

/* The daemon supports one version and refuses all others. */
TEST_WITH(a_daemon_that_does_not_negotiate_is_asked_again, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;
	union wire_message m;
	struct wire_fds fds;

	protocol_init(&m, WIRE_ERROR);
	m.error.code = -EPROTO;
	strcpy(m.error.text, "dieseld 0.1.0 speaks protocol 7 and the client 8: install one version of both");
	assert_int_equal(transport_send(p->daemon, &m, NULL, 0), 0);
	hello_reply(p, WIRE_VERSION_LEAST);
	assert_int_equal(transport_hello(&p->transport, &err), 0);
	assert_int_equal(p->transport.version, WIRE_VERSION_LEAST);
	assert_int_equal(transport_receive(p->daemon, &m, &fds), 0);
	assert_int_equal(transport_receive(p->daemon, &m, &fds), 0);
	assert_int_equal(m.hello.version, WIRE_VERSION_LEAST);
}

TEST_WITH(a_version_that_was_not_offered_is_refused, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;

	hello_reply(p, WIRE_VERSION + 1);
	assert_int_equal(transport_hello(&p->transport, &err), -EPROTO);
	assert_over(p);
}

TEST_WITH(a_late_reply_is_no_answer, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;

	union wire_message m;

	assert_int_equal(seek(p, &err), -ETIMEDOUT);
	assert_over(p);
	protocol_init(&m, WIRE_SEEK_REPLY);
	m.header.sequence = 1;
	assert_int_equal(transport_send(p->daemon, &m, NULL, 0), -EPIPE);
}

TEST_WITH(a_reply_to_another_request_ends_it, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;

	answer(p, WIRE_SEEK_REPLY, 7);
	answer(p, WIRE_SEEK_REPLY, 2);
	assert_int_equal(seek(p, &err), -EPROTO);
	assert_non_null(strstr(err.text, "unexpected reply"));
	assert_over(p);
}

TEST_WITH(an_error_for_another_request_ends_it, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;

	answer(p, WIRE_ERROR, 0);
	answer(p, WIRE_SEEK_REPLY, 2);
	assert_int_equal(seek(p, &err), -EPROTO);
	assert_over(p);
}

TEST_WITH(a_reply_of_another_kind_ends_it, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;

	answer(p, WIRE_STOP_REPLY, 1);
	answer(p, WIRE_SEEK_REPLY, 2);
	assert_int_equal(seek(p, &err), -EPROTO);
	assert_over(p);
}

TEST_WITH(what_is_no_message_ends_it, pair_setup, pair_teardown)
{
	struct pair *p = *state;
	struct error err = ERROR_INIT;

	assert_int_equal(send(p->daemon, "short", 5, 0), 5);
	answer(p, WIRE_SEEK_REPLY, 2);
	assert_int_equal(seek(p, &err), -EPROTO);
	assert_over(p);
}
