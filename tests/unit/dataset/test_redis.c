/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of a Redis Cluster, and the parsing of servers' replies. */
#include "tests/support.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataset/redis/redis_conn.h"
#include "dataset/redis/redis_refusal.h"
#include "dataset/redis/redis_slots.h"

static uint16_t slot(const char *key)
{
	return redis_slot(key, strlen(key));
}

/* The values are from Redis Cluster's specification, and from CLUSTER KEYSLOT. */
TEST(slots_follow_the_specification)
{
	assert_int_equal(slot("123456789"), 0x31c3);
	assert_int_equal(slot(""), 0);
	assert_int_equal(slot("foo"), 12182);
	assert_int_equal(slot("{user1000}.following"), slot("{user1000}.followers"));
	assert_int_equal(slot("foo{}{bar}"), 8363);
	assert_int_equal(slot("foo{{bar}}zap"), slot("{bar"));
	assert_int_equal(slot("foo{bar}{zap}"), slot("bar"));
	assert_int_not_equal(slot("foo{bar"), slot("bar"));
}

_Static_assert(N_REDIS_SCRIPTS == 3, "the greeting below has a reply to each");

#define SHA "$40\r\n0123456789abcdef0123456789abcdef01234567\r\n"

/* Returns a connection that waits for the replies to n commands. *ret_server: the server's end of it. */
static struct redis_conn *connection(int *ret_server, size_t n)
{
	static const char greeting[] = "$0\r\n\r\n" SHA SHA SHA;
	const struct redis_login login = {
	    .user = "", .password = "", .text = "SERVER", .silence_ns = 600 * UINT64_C(1000000000)};
	struct redis_facts facts;
	struct redis_conn *c;
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(write(ends[1], greeting, sizeof(greeting) - 1), sizeof(greeting) - 1);
	assert_int_equal(redis_conn_open(ends[0], &login, &c, &facts, NULL), 0);
	redis_conn_begin(c);
	for (size_t i = 0; i < n; i++)
		redis_conn_add_text(c, 1, (const char *[]){"PING"});
	*ret_server = ends[1];
	return c;
}

static int step(struct redis_conn *c)
{
	struct pollfd p;
	uint64_t until_ns;

	return redis_conn_step(c, &p, &until_ns);
}

static redisReply *reply_of(const char *text)
{
	int server, r = 0;
	struct redis_conn *c = connection(&server, 1);
	redisReply *reply;

	/* The reply comes in pieces, as it may from a server. */
	for (size_t i = 0; i < strlen(text); i++) {
		assert_int_equal(r, 0);
		assert_int_equal(write(server, text + i, 1), 1);
		r = step(c);
	}
	assert_int_equal(r, 1);
	reply = redis_conn_take(c, 0);
	assert_non_null(reply);
	redis_conn_close(c);
	close(server);
	return reply;
}

static int take(const struct redis_range *range, void *context)
{
	struct redis_range *list = context;

	while (list->master.port[0])
		list++;
	*list = *range;
	return 0;
}

static int ranges_of(const char *text, struct redis_range list[4])
{
	redisReply *reply = reply_of(text);

	memset(list, 0, 4 * sizeof(*list));
	int r = redis_slots_each(reply, take, list);
	freeReplyObject(reply);
	return r;
}

TEST(ranges_of_slots_are_parsed)
{
	struct redis_range list[4];

	assert_int_equal(ranges_of("*2\r\n*3\r\n:0\r\n:5460\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n"
				   "*4\r\n:5461\r\n:16383\r\n*2\r\n$-1\r\n:7001\r\n*2\r\n$1\r\nx\r\n:1\r\n",
				   list),
			 0);
	assert_int_equal(list[0].first, 0);
	assert_int_equal(list[0].last, 5460);
	assert_string_equal(list[0].master.host, "127.0.0.1");
	assert_string_equal(list[0].master.port, "7000");
	assert_int_equal(list[1].last, 16383);
	assert_string_equal(list[1].master.host, ""); /* the node that was asked */
	assert_string_equal(list[1].master.port, "7001");

	assert_int_equal(ranges_of("+OK\r\n", list), -EPROTO);
	assert_int_equal(ranges_of("*1\r\n*2\r\n:0\r\n:1\r\n", list), -EPROTO);
	assert_int_equal(ranges_of("*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n", list), -EPROTO);
	assert_int_equal(ranges_of("*1\r\n*3\r\n:-1\r\n:5\r\n*2\r\n$1\r\nh\r\n:1\r\n", list), -EPROTO);
	assert_int_equal(ranges_of("*1\r\n*3\r\n:6\r\n:5\r\n*2\r\n$1\r\nh\r\n:1\r\n", list), -EPROTO);
	assert_int_equal(ranges_of("*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\nh\r\n:65536\r\n", list), -EPROTO);
	assert_int_equal(ranges_of("*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\n?\r\n:1\r\n", list), -EPROTO);
	assert_int_equal(ranges_of("*1\r\n*3\r\n:0\r\n:5\r\n*1\r\n$1\r\nh\r\n", list), -EPROTO);
}

static int redirection(const char *text, uint16_t *ret_slot, struct redis_address *ret)
{
	redisReply *reply = reply_of(text);
	int r = redis_slots_redirection(reply, ret_slot, ret);

	freeReplyObject(reply);
	return r;
}

TEST(redirections_are_parsed)
{
	struct redis_address address;
	uint16_t number;

	assert_int_equal(redirection("-MOVED 3999 127.0.0.1:6381\r\n", &number, &address), 0);
	assert_int_equal(number, 3999);
	assert_string_equal(address.host, "127.0.0.1");
	assert_string_equal(address.port, "6381");
	assert_int_equal(redirection("-ASK 16383 2001:db8::1:6381\r\n", &number, &address), 0);
	assert_string_equal(address.host, "2001:db8::1");
	assert_int_equal(redirection("-MOVED 1 :6381\r\n", &number, &address), 0);
	assert_string_equal(address.host, "");
	static const char *const bad[] = {
	    "-MOVED\r\n",       "-MOVED 1\r\n",     "-MOVED 1 host\r\n",  "-MOVED 16384 h:1\r\n",
	    "-MOVED x h:1\r\n", "-MOVED 1 h:0\r\n", "-MOVED 1 a b:1\r\n", "-MOVED 11111111111111 h:1\r\n"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(redirection(bad[i], &number, &address), -EPROTO);
}

static int refusal(const char *text)
{
	redisReply *reply = reply_of(text);
	struct error err = ERROR_INIT;
	int r = redis_refusal(reply, "SERVER", &err);

	assert_memory_equal(err.text, "SERVER: ", 8);
	freeReplyObject(reply);
	return r;
}

TEST(refusals_become_errors)
{
	assert_int_equal(refusal("-OOM command not allowed\r\n"), -ENOSPC);
	assert_int_equal(
	    refusal(
		"-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command\r\n"),
	    -ENOSPC);
	assert_int_equal(refusal("-LOADING Redis is loading\r\n"), -EAGAIN);
	assert_int_equal(refusal("-CLUSTERDOWN Hash slot not served\r\n"), -EAGAIN);
	assert_int_equal(refusal("-OOMPH\r\n"), -EIO);
	assert_int_equal(refusal("-ERR unknown \x1b[31m\r\n"), -EIO);
}

/* Sends a text once, and then another one until the connection fails. Returns the number of bytes sent. */
static size_t flood(const char *text, const void *more, size_t more_bytes)
{
	int server, r;
	struct redis_conn *c = connection(&server, 2);
	size_t sent = strlen(text);

	assert_int_equal(write(server, text, sent), sent);
	while ((r = step(c)) == 0) {
		ssize_t n = write(server, more, more_bytes);

		assert_true(n > 0);
		sent += (size_t)n;
	}
	assert_int_equal(r, -EPROTO);
	redis_conn_close(c);
	close(server);
	return sent;
}

TEST(a_reply_takes_bounded_memory)
{
	static char much[1 << 20];

	memset(much, 'x', sizeof(much));
	assert_int_equal(flood("*1048577\r\n", NULL, 0), 10);
	assert_int_equal(flood("*600000\r\n*600000\r\n", NULL, 0), 18);
	assert_in_range(flood("$500000000\r\n", much, sizeof(much)), 1, REDIS_CONN_BYTES + sizeof(much));
	assert_in_range(flood("+", much, sizeof(much)), 1, sizeof(much)); /* a line */
}
