/* SPDX-License-Identifier: Apache-2.0 */
/* What a client that is not libdiesel may do on its socket, and what becomes of it. */
#include "node.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/transport.h"

static int greet(const struct node *node)
{
	union wire_message m;
	struct wire_fds fds;
	int fd = connect_to(node->socket);

	protocol_init(&m, WIRE_HELLO);
	m.hello.magic = WIRE_MAGIC;
	m.hello.version = WIRE_VERSION;
	assert_int_equal(transport_send(fd, &m, NULL, 0), 0);
	assert_int_equal(transport_receive(fd, &m, &fds), 0);
	assert_int_equal(m.header.type, WIRE_HELLO_REPLY);
	return fd;
}

static void test_a_client_that_reads_no_replies_is_cut_off(void **state)
{
	struct node node = {0};
	union wire_message m;
	struct wire_fds fds;
	uint32_t n_sent = 0, n_read = 0, n_errors = 0;
	int fd, r;

	node_start(&node, *state);
	fd = greet(&node);
	for (r = 0; r == 0 && n_sent < 20000; n_sent++) {
		protocol_init(&m, WIRE_SEGMENT);
		m.header.sequence = (uint16_t)(n_sent + 1);
		r = transport_send(fd, &m, NULL, 0);
	}
	assert_true(r == -EPIPE || r == -ECONNRESET);
	/* What was sent to it before comes in order, without a gap, and then the end. The kernel may tell
	 * first that requests were left unread. */
	do {
		r = transport_receive(fd, &m, &fds);
		if (r == 0) {
			assert_int_equal(m.header.type, WIRE_ERROR);
			assert_int_equal(m.header.sequence, ++n_read);
		}
	} while (r == 0 || (n_read == 0 && n_errors++ == 0));
	assert_int_equal(r, -ECONNRESET);
	assert_in_range(n_read, 1, 64);
	close(fd);
	node_stop(&node);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_client_that_reads_no_replies_is_cut_off, make_folder,
					    remove_folder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
