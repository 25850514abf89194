/* SPDX-License-Identifier: Apache-2.0 */
/* How often a source may connect, and who the source is if it is a process of this machine. */
#include "tests/support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "daemon/cluster/net_sources.h"

#define SECONDS 20
#define FLOOD   20000 /* connections per second */

static struct net_address address(const char *text)
{
	struct net_address a;

	assert_int_equal(net_address_parse(text, &a), 0);
	return a;
}

static struct net_source far(const char *text)
{
	struct net_address a = address(text);

	return net_source_of(NET_SOURCE_MACHINE, &a, UINT32_MAX);
}

/* Hostile sources connect all the time. Another source, which connects once a second, is always admitted. */
static void flood(const struct net_source *hostile, uint32_t n_hostile, const struct net_source *other,
		  bool is_stranger)
{
	static struct net_sources s;
	uint32_t n_admitted = 0;

	memset(&s, 0, sizeof(s));
	for (uint64_t i = 1; i <= (uint64_t)SECONDS * FLOOD; i++) {
		uint64_t now_ns = i * (NS_PER_S / FLOOD);

		n_admitted += net_sources_admit(&s, &hostile[i % n_hostile], true, now_ns);
		if (i % FLOOD == 0)
			assert_true(net_sources_admit(&s, other, is_stranger, now_ns));
	}
	assert_true(n_admitted >= SECONDS * (uint32_t)NET_SOURCE_PER_S);
	assert_true(n_admitted <=
		    n_hostile * ((SECONDS + 1) * (uint32_t)NET_SOURCE_PER_S + (uint32_t)NET_SOURCE_BURST));
	assert_true(n_admitted <=
		    (SECONDS + 1) * (uint32_t)NET_STRANGERS_PER_S + (uint32_t)NET_STRANGERS_BURST);
}

TEST(one_source_keeps_no_other_out)
{
	const struct net_source hostile = far("10.0.0.1:1"), other = far("10.0.0.2:1");

	flood(&hostile, 1, &other, true);
}

TEST(many_sources_keep_no_node_out)
{
	struct net_source hostile[200];
	const struct net_source node = far("10.0.1.1:1");

	for (int i = 0; i < 200; i++) {
		char text[NET_ADDRESS_BYTES];

		snprintf(text, sizeof(text), "10.0.0.%d:1", i);
		hostile[i] = far(text);
	}
	flood(hostile, 200, &node, false);
}

TEST(what_one_source_is)
{
	struct net_address one = address("127.0.0.1:1"), two = address("127.0.0.2:1");
	struct net_source a = far("10.0.0.1:1"), b = far("10.0.0.1:2");

	assert_true(net_source_equal(&a, &b));
	a = far("[2001:db8::1]:1");
	b = far("[2001:db8::ffff:2]:1");
	assert_true(net_source_equal(&a, &b)); /* one host may use any of these addresses */
	b = far("[2001:db8:0:1::1]:1");
	assert_false(net_source_equal(&a, &b));
	a = far("[::ffff:10.0.0.1]:1");
	b = far("[::ffff:10.0.0.2]:1");
	assert_false(net_source_equal(&a, &b));
	a = net_source_of(NET_SOURCE_USER, &one, 1000);
	b = net_source_of(NET_SOURCE_USER, &two, 1000);
	assert_true(net_source_equal(&a, &b));
	b = net_source_of(NET_SOURCE_USER, &one, 1001);
	assert_false(net_source_equal(&a, &b));
	a = net_source_of(NET_SOURCE_NODE, &one, 0); /* several nodes of one machine */
	b = net_source_of(NET_SOURCE_NODE, &two, 0);
	assert_false(net_source_equal(&a, &b));
}

/* Finds the user of a process that has connected. */
static void check_user(const char *at, uid_t uid)
{
	struct net_address a = address(at), far = {.bytes = sizeof(far.name)};
	int listening = socket(a.name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, pipes[2], r;
	uint32_t found = UINT32_MAX;

	assert_int_equal(bind(listening, (struct sockaddr *)&a.name, a.bytes), 0);
	assert_int_equal(listen(listening, 1), 0);
	assert_int_equal(net_address_local(listening, &a), 0);
	assert_int_equal(pipe(pipes), 0);
	pid_t pid = fork();
	if (pid == 0) {
		char end;

		close(pipes[1]);
		if (uid != geteuid() && setuid(uid) < 0)
			_exit(1);
		fd = socket(a.name.ss_family, SOCK_STREAM, 0);
		r = connect(fd, (struct sockaddr *)&a.name, a.bytes);
		(void)!read(pipes[0], &end, 1);
		_exit(r < 0);
	}
	fd = accept4(listening, (struct sockaddr *)&far.name, &far.bytes, SOCK_CLOEXEC);
	assert_true(fd >= 0);
	r = net_address_user(fd, &far, &found);
	assert_int_not_equal(r, 1); /* on this machine */
	if (r < 0)
		print_message("this kernel does not say who it is: %s\n", strerror(-r));
	else
		assert_int_equal(found, uid);
	close(pipes[1]);
	assert_int_equal(waitpid(pid, &r, 0), pid);
	assert_int_equal(r, 0);
	/* The other end has no owner any more. */
	assert_true(net_address_user(fd, &far, &found) < 0);
	close(fd);
	close(listening);
	close(pipes[0]);
}

TEST(a_connection_s_user_is_found)
{
	check_user("127.0.0.1:0", geteuid());
	check_user("[::1]:0", geteuid());
	if (geteuid() == 0)
		check_user("127.0.0.1:0", 65534);
}
