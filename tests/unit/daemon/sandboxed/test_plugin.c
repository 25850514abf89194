/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to plug-ins: how many may run at a time, and how the daemon handles the answers. The helpers are
 * the test's own, and give the test's answer, or none. */
#include "tests/support.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fd_message.h"
#include "daemon/sandboxed/plugin.h"

struct place {
	struct plugins plugins;
	struct fork_server fork_server;
	uv_loop_t loop;
};

static void fork_server(int fd, const struct plugin_reply *reply)
{
	int fds[FD_MESSAGE_MAX_FDS];
	struct fork_server_order told;
	struct plugin_order order;
	size_t n;

	signal(SIGCHLD, SIG_IGN);
	while (fd_message_receive(fd, &told, sizeof(told), 0, fds, &n) > 0) {
		int theirs = fds[0];

		if (fork() == 0) {
			close(fd);
			(void)fd_message_receive(theirs, &order, sizeof(order), 0, fds, &n);
			if (!reply) /* stays until its question is dropped */
				(void)fd_message_receive(theirs, &order, sizeof(order), 0, fds, &n);
			else
				(void)fd_message_send(theirs, reply, sizeof(*reply), NULL, 0, 0);
			_exit(0);
		}
		close(theirs);
	}
	_exit(0);
}

/* reply: the answer of each helper; NULL: none */
static void begin(struct place *p, const struct plugin_reply *reply)
{
	int fds[2];

	memset(p, 0, sizeof(*p));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	p->fork_server.fd = fds[0];
	p->fork_server.pid = fork();
	if (p->fork_server.pid == 0) {
		close(fds[0]);
		fork_server(fds[1], reply);
	}
	close(fds[1]);
	p->plugins = (struct plugins){
	    .all = {{.name = "wav", .path = "/wav.so", .fd = memfd_create("wav", MFD_CLOEXEC)}},
	    .n = 1,
	    .fork_server = &p->fork_server};
	assert_int_equal(uv_loop_init(&p->loop), 0);
}

static void end(struct place *p)
{
	plugins_stop(&p->plugins);
	uv_run(&p->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&p->loop), 0);
	plugins_free(&p->plugins);
	close(p->fork_server.fd);
	assert_int_equal(waitpid(p->fork_server.pid, NULL, 0), p->fork_server.pid);
}

struct heard {
	uint32_t n;
	bool has_answer;
	struct plugin_answer answer;
	struct error error;
};

static void hear(void *user, const struct plugin_answer *answer, const struct error *err)
{
	struct heard *h = user;

	h->n++;
	h->has_answer = answer;
	if (answer)
		h->answer = *answer;
	h->error = *err;
}

static int ask(struct place *p, uint32_t uid, struct heard *heard, struct plugin_question **ret,
	       struct error *err)
{
	static const struct recipe_codec codec = {.name = "wav", .options = "length=3"};

	*err = ERROR_INIT;
	return plugin_ask(
	    &p->plugins, &codec,
	    &(struct plugin_asker){.loop = &p->loop, .uid = uid, .answered = hear, .user = heard}, ret, err);
}

TEST(how_many_may_ask)
{
	struct plugin_question *q[PLUGIN_MAX_ASKING + 1];
	struct heard heard = {0};
	struct place p;
	struct error err;

	begin(&p, NULL);
	for (uint32_t i = 0; i < PLUGIN_MAX_ASKING; i++)
		assert_int_equal(ask(&p, 1000 + i / PLUGIN_MAX_ASKING_UID, &heard, &q[i], &err), 0);
	assert_int_equal(ask(&p, 5, &heard, &q[PLUGIN_MAX_ASKING], &err),
			 -EAGAIN); /* all users together have too many questions */
	assert_int_equal(ask(&p, 0, &heard, &q[PLUGIN_MAX_ASKING], &err), 0);
	end(&p);
	begin(&p, NULL);
	for (uint32_t i = 0; i < PLUGIN_MAX_ASKING_UID; i++)
		assert_int_equal(ask(&p, 1000, &heard, &q[i], &err), 0);
	plugin_forget(q[0]); /* the question's process still exists */
	assert_int_equal(ask(&p, 1000, &heard, &q[0], &err), -EAGAIN);
	assert_non_null(strstr(err.text, "try again"));
	assert_int_equal(ask(&p, 1001, &heard, &q[0], &err), 0);
	end(&p);
	assert_int_equal(heard.n, 0);
}

static struct heard answered(const struct plugin_reply *reply)
{
	struct plugin_question *q;
	struct heard heard = {0};
	struct place p;
	struct error err;

	begin(&p, reply);
	assert_int_equal(ask(&p, 1000, &heard, &q, &err), 0);
	uv_run(&p.loop, UV_RUN_DEFAULT);
	end(&p);
	assert_int_equal(heard.n, 1);
	return heard;
}

static const struct plugin_reply good = {.type = RECIPE_INT16,
					 .codec = {.name = "other", .n_dimensions = 2, .dimensions = {2, 3}}};

TEST(an_answer_is_about_what_was_asked)
{
	struct heard heard = answered(&good);

	assert_true(heard.has_answer);
	assert_int_equal(heard.answer.type, RECIPE_INT16);
	assert_int_equal(heard.answer.codec.dimensions[1], 3);
	/* the name that was asked about, whatever the answer says */
	assert_string_equal(heard.answer.codec.name, "wav");
	assert_string_equal(heard.answer.codec.options, "length=3");
}

TEST(answers_that_are_none)
{
	struct plugin_reply reply = good;

	reply.codec.n_dimensions = 1000000;
	assert_false(answered(&reply).has_answer);
	reply = good;
	reply.type = 1000000;
	assert_false(answered(&reply).has_answer);
	reply = good;
	reply.status = 1;
	assert_false(answered(&reply).has_answer);
	reply = good;
	reply.status = -EINVAL;
	memset(reply.error.text, '\n', sizeof(reply.error.text)); /* no terminating NUL, and many lines */
	struct heard heard = answered(&reply);
	assert_false(heard.has_answer);
	assert_int_equal(heard.error.code, -EINVAL);
	assert_null(strchr(heard.error.text, '\n'));
}

TEST(a_codec_that_is_not_offered_is_refused)
{
	struct plugin_question *q;
	struct heard heard = {0};
	struct error err = ERROR_INIT;
	struct recipe_codec codec = {.name = "flac"};
	struct place p;

	begin(&p, NULL);
	struct plugin_asker asker = (struct plugin_asker){.loop = &p.loop, .answered = hear, .user = &heard};
	assert_int_equal(plugin_ask(&p.plugins, &codec, &asker, &q, &err), -ENOENT);
	assert_string_equal(err.text, "dieseld has no codec \"flac\"; its codecs are wav");
	p.plugins.all[0].name[0] = '\0'; /* a plug-in that could not be loaded */
	codec.name[0] = '\0';
	assert_int_equal(plugin_ask(&p.plugins, &codec, &asker, &q, &err), -ENOENT);
	end(&p);
}
