/* SPDX-License-Identifier: Apache-2.0 */
/* A node of a cluster without a daemon around it. It has every chunk, whose bytes follow from its id, and
 * executes orders from standard input, one per line. It prints events on standard output, one per line.
 *
 *	cluster_node URL NAME ADDRESS [KEY [ADVERTISED]]    URL: support_registry.c
 *
 *	join JOB                group ID, and members N whenever the number of reachable members changes
 *	fetch NUMBER BYTES [MS] done NUMBER CODE TEXT; compares the bytes, CODE 1: they were wrong
 *	ours NUMBER BYTES       ours NUMBER 0 or 1
 *	answers HOW             ok; HOW: "right" or "wrong" bytes, "late": never, "no",
 *				"kept": right bytes, without making or comparing them
 *	peers                   per peer: peer NAME is_connected is_unreachable
 *				chunks_in chunks_out failed; ok
 *	held                    held N: answers that are not given back yet
 *
 * It prints asked NUMBER when another node requests a chunk.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/cluster/cluster.h"
#include "lib/log.h"
#include "cluster_node_chunk.h"

struct node {
	uv_loop_t loop;
	uv_pipe_t in;
	char line[4096];
	size_t have;
	struct cluster *cluster;
	struct cluster_group *group;
	char answers[16];
	unsigned n_held;
	uint32_t n_members;
};

struct fetch {
	struct cluster_read read;
	struct node *node;
	uint64_t number;
};

#define KEPT 128

struct answer {
	int fd;
	struct node *node;
};

/* For benchmarks: returns a chunk that was made earlier. */
static int kept_chunk(uint64_t number, uint64_t bytes)
{
	static struct {
		uint64_t number, bytes;
		int fd;
	} kept[KEPT];
	size_t i = number % KEPT;

	if (!kept[i].fd || kept[i].number != number || kept[i].bytes != bytes) {
		if (kept[i].fd)
			close(kept[i].fd);
		kept[i].number = number;
		kept[i].bytes = bytes;
		kept[i].fd = chunk_memory(bytes);
		chunk_fill(kept[i].fd, number, bytes);
	}
	return dup(kept[i].fd);
}

static void on_asked(void *user, struct cluster_group *group, const struct chunk_id *chunk,
		     struct cluster_question *question)
{
	struct node *n = user;
	struct answer *a;
	uint64_t number, bytes;

	chunk_parse(chunk, &number, &bytes);
	printf("asked %llu\n", (unsigned long long)number);
	if (strcmp(n->answers, "late") == 0)
		return;
	if (strcmp(n->answers, "no") == 0) {
		cluster_refuse(question, -ENOENT);
		return;
	}
	a = malloc(sizeof(*a));
	a->node = n;
	if (strcmp(n->answers, "kept") == 0) {
		a->fd = kept_chunk(number, bytes);
	} else {
		a->fd = chunk_memory(bytes);
		chunk_fill(a->fd, number + (strcmp(n->answers, "wrong") == 0), bytes);
	}
	n->n_held++;
	cluster_answer(question, a->fd, bytes, a);
}

static void on_given(void *user, void *answer)
{
	struct answer *a = answer;

	a->node->n_held--;
	close(a->fd);
	free(a);
}

static void on_changed(void *user, struct cluster_group *group)
{
	struct node *n = user;
	uint32_t now = cluster_n_members(group);

	if (now != n->n_members)
		printf("members %u\n", now);
	n->n_members = now;
}

static void on_done(struct cluster_read *read, int result, const struct error *err)
{
	struct fetch *f = (struct fetch *)read;

	if (result == 0 && strcmp(f->node->answers, "kept") != 0 &&
	    !chunk_is(read->memory_fd, f->number, read->bytes)) {
		cluster_spoilt(read);
		printf("done %llu 1 the bytes are wrong\n", (unsigned long long)f->number);
	} else {
		printf("done %llu %d %s\n", (unsigned long long)f->number, result, err->text);
	}
	close(read->memory_fd);
	free(f);
}

static void fetch(struct node *n, const char *rest)
{
	unsigned long long number = 0, bytes = 0, ms = 1500;
	struct fetch *f = calloc(1, sizeof(*f));
	int r;

	sscanf(rest, "%llu %llu %llu", &number, &bytes, &ms);
	f->node = n;
	f->number = number;
	f->read = (struct cluster_read){.group = n->group,
					.chunk = chunk_of(number, bytes),
					.bytes = bytes,
					.memory_fd = chunk_memory(bytes),
					.patience_ns = ms * 1000000,
					.done = on_done};
	r = cluster_fetch(&f->read);
	if (r == 0)
		return;
	printf("done %llu %d not asked\n", number, r);
	close(f->read.memory_fd);
	free(f);
}

static void join(struct node *n, const char *job)
{
	struct registry_group_key key = {.uid = 7};
	struct registry_group_id id;

	snprintf(key.job, sizeof(key.job), "%s", job);
	registry_group_id(&key, &id);
	printf("group %s\n", id.text);
	if (cluster_join(n->cluster, &key, "/data", 1 << 30, &(struct owner_lanes){0}, &n->group) < 0)
		exit(1);
}

static void show_peers(const struct node *n)
{
	static struct cluster_peer_figures peers[64];
	size_t count = cluster_peers_get(n->cluster, peers, 64);

	for (size_t i = 0; i < count; i++)
		printf("peer %s %d %d %llu %llu %llu\n", peers[i].node, peers[i].is_connected,
		       peers[i].is_unreachable, (unsigned long long)peers[i].chunks_in,
		       (unsigned long long)peers[i].chunks_out, (unsigned long long)peers[i].failed);
	printf("ok\n");
}

static void show_owner(const struct node *n, const char *rest)
{
	unsigned long long number = 0, bytes = 0;
	struct chunk_id id;

	sscanf(rest, "%llu %llu", &number, &bytes);
	id = chunk_of(number, bytes);
	printf("ours %llu %d\n", number, cluster_is_ours(n->group, &id, NULL));
}

static void set_answers(struct node *n, const char *how)
{
	snprintf(n->answers, sizeof(n->answers), "%s", how);
	printf("ok\n");
}

static void obey(struct node *n, const char *line)
{
	if (strncmp(line, "join ", 5) == 0)
		join(n, line + 5);
	else if (strncmp(line, "fetch ", 6) == 0)
		fetch(n, line + 6);
	else if (strncmp(line, "ours ", 5) == 0)
		show_owner(n, line + 5);
	else if (strncmp(line, "answers ", 8) == 0)
		set_answers(n, line + 8);
	else if (strcmp(line, "peers") == 0)
		show_peers(n);
	else if (strcmp(line, "held") == 0)
		printf("held %u\n", n->n_held);
	else
		uv_stop(&n->loop);
}

static void on_space(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct node *n = handle->data;

	*buf = uv_buf_init(n->line + n->have, (unsigned)(sizeof(n->line) - n->have));
}

static void on_input(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
	struct node *n = stream->data;
	char *end;

	if (got <= 0) {
		uv_stop(&n->loop);
		return;
	}
	n->have += (size_t)got;
	while ((end = memchr(n->line, '\n', n->have))) {
		size_t used = (size_t)(end - n->line) + 1;

		*end = '\0';
		obey(n, n->line);
		memmove(n->line, n->line + used, n->have - used);
		n->have -= used;
	}
}

int main(int argc, char **argv)
{
	static struct node n = {.answers = "right"};
	const struct cluster_handler handler = {
	    .asked = on_asked, .given = on_given, .changed = on_changed, .user = &n};
	struct cluster_options options = {.redis = argv[1], .node = argv[2], .listen = argv[3]};
	struct fork_server keeper;
	struct error err = ERROR_INIT;

	if (argc < 4)
		return 2;
	options.key_file = argc > 4 ? argv[4] : NULL;
	options.advertise = argc > 5 ? argv[5] : NULL;
	log_init(argv[2], LOG_LEVEL_INFO);
	setlinebuf(stdout);
	if (cluster_fork(&options, &keeper, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 3;
	}
	uv_loop_init(&n.loop);
	if (cluster_new(&n.loop, &keeper, &handler, &n.cluster) < 0)
		return 1;
	uv_pipe_init(&n.loop, &n.in, 0);
	n.in.data = &n;
	uv_pipe_open(&n.in, STDIN_FILENO);
	uv_read_start((uv_stream_t *)&n.in, on_space, on_input);
	printf("ready\n");
	uv_run(&n.loop, UV_RUN_DEFAULT);
	cluster_free(n.cluster);
	uv_close((uv_handle_t *)&n.in, NULL);
	uv_run(&n.loop, UV_RUN_DEFAULT);
	return uv_loop_close(&n.loop) == 0 ? 0 : 1;
}
