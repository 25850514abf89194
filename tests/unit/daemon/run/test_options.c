/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/protocol.h"
#include "lib/cleanup.h"
#include "lib/limits.h"
#include "daemon/run/options.h"

#define GIB (UINT64_C(1) << 30)

static int parse(struct daemon_options *o, struct error *err, const char *const *arguments)
{
	char *argv[24] = {(char *)"dieseld"};
	int argc = 1;

	for (; arguments[argc - 1]; argc++)
		argv[argc] = (char *)arguments[argc - 1];
	assert_int_equal(options_init(o, 8 * GIB, 2), 0);
	*err = ERROR_INIT;
	return options_parse(o, argc, argv, err);
}

TEST(defaults_follow_memory_and_cores)
{
	struct daemon_options o;

	assert_int_equal(options_init(&o, 8 * GIB, 16), 0);
	assert_int_equal(o.serve.knobs.cache_bytes, 2 * GIB);
	assert_int_equal(o.serve.knobs.workers, 4);
	assert_true(o.serve.use_io_uring);
	assert_int_equal(o.exit_when_idle_s, 0);
	options_free(&o);
	assert_int_equal(options_init(&o, 0, 0), 0); /* without information about the machine */
	assert_true(o.serve.knobs.cache_bytes >= 16u << 20);
	assert_int_equal(o.serve.knobs.workers, 1);
	options_free(&o);
}

TEST(each_option_of_the_command_line_is_read)
{
	struct daemon_options o;
	struct error err;

	assert_int_equal(
	    parse(&o, &err,
		  (const char *const[]){"--socket", "/tmp/x", "--cache=3G", "--prefetch", "5", "--workers",
					"3", "--window", "4", "--batches", "6", "--no-io-uring",
					"--require-digest", "shared", "--exit-when-idle", "300", "-v", NULL}),
	    0);
	assert_string_equal(o.socket_path, "/tmp/x");
	assert_int_equal(o.serve.knobs.cache_bytes, 3 * GIB);
	assert_int_equal(o.serve.knobs.prefetch_chunks, 5);
	assert_int_equal(o.serve.knobs.workers, 3);
	assert_int_equal(o.serve.window_chunks, 4);
	assert_int_equal(o.serve.n_slots, 6);
	assert_int_equal(o.serve.require_digest, SERVING_DIGEST_SHARED);
	assert_int_equal(o.exit_when_idle_s, 300);
	assert_false(o.serve.use_io_uring);
	assert_true(o.verbose);
	options_free(&o);
}

TEST(a_reload_takes_what_applies_at_once_and_nothing_else)
{
	struct daemon_options o, again;
	struct error err;

	assert_int_equal(parse(&o, &err, (const char *const[]){"--socket", "/tmp/x", NULL}), 0);
	assert_int_equal(parse(&again, &err,
			       (const char *const[]){"--socket",
						     "/tmp/y",
						     "--cache=3G",
						     "--prefetch",
						     "5",
						     "--window",
						     "4",
						     "--batches",
						     "6",
						     "--user-share",
						     "50",
						     "--observe",
						     "--no-io-uring",
						     "--require-digest",
						     "shared",
						     "--exit-when-idle",
						     "300",
						     "--metrics-names",
						     "hidden",
						     "--stage-size",
						     "20G",
						     "--read-limit",
						     "1M",
						     NULL}),
			 0);
	options_reload(&o, &again);
	assert_int_equal(o.serve.knobs.cache_bytes, 3 * GIB);
	assert_int_equal(o.serve.knobs.prefetch_chunks, 5);
	assert_int_equal(o.serve.window_chunks, 4);
	assert_int_equal(o.serve.n_slots, 6);
	assert_int_equal(o.serve.user_share, 50);
	assert_int_equal(o.serve.require_digest, SERVING_DIGEST_SHARED);
	assert_int_equal(o.exit_when_idle_s, 300);
	assert_int_equal(o.settings.configured[WIRE_SET_READ_LIMIT], 1 << 20);
	assert_true(o.serve.observe && o.hide_names);
	/* A restart is needed for the others. */
	assert_string_equal(o.socket_path, "/tmp/x");
	assert_true(o.serve.use_io_uring);
	assert_int_equal(o.serve.stage.bytes, 16 * GIB);
	options_free(&again);
	options_free(&o);
}

TEST(mistakes_are_named)
{
	static const char *const table[][3] = {
	    {"--cache", "lots", "cache"},
	    {"--cache", "1M", "cache"},
	    {"--workers", "0", "workers"},
	    {"--user-share", "0", "user-share"},
	    {"--user-share", "101", "user-share"},
	    {"--cache-quota", "1000=60%,1001=41%", "cache-quota"},
	    {"--require-digest", "yes", "require-digest"},
	    {"--exit-when-idle", "5m", "exit-when-idle"},
	    {"--batches", "2", "batches"},
	    {"--batches", "65", "batches"},
	    {"--window", "-1", "window"},
	    {"--nonsense", NULL, "nonsense"},
	    {"--prefetch", NULL, "prefetch"},
	    {"stray", NULL, "stray"},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct daemon_options o;
		struct error err;

		assert_int_equal(parse(&o, &err, (const char *const[]){table[i][0], table[i][1], NULL}),
				 -EINVAL);
		if (!strstr(err.text, table[i][2]))
			fail_msg("\"%s\" does not name %s", err.text, table[i][2]);
		options_free(&o);
	}
}

TEST_IN_FOLDER(the_command_line_beats_the_file)
{
	_cleanup_(freep) char *path = path_in(*state, "dieseld.conf");
	struct daemon_options o;
	struct error err;

	write_text(*state, "dieseld.conf",
		   "; for tests\n[other]\nx = y\n[dieseld]\ncache = 4G\nprefetch = 3\n");
	/* The command line has priority, wherever it names the file. */
	assert_int_equal(parse(&o, &err, (const char *const[]){"--prefetch", "9", "--config", path, NULL}),
			 0);
	assert_int_equal(o.serve.knobs.cache_bytes, 4 * GIB);
	assert_int_equal(o.serve.knobs.prefetch_chunks, 9);
	options_free(&o);
	write_text(*state, "dieseld.conf", "[dieseld]\ncahce = 4G\n");
	assert_int_equal(parse(&o, &err, (const char *const[]){"--config", path, NULL}), -EINVAL);
	assert_non_null(strstr(err.text, "cahce"));
	assert_non_null(strstr(err.text, path));
	options_free(&o);
	write_text(*state, "dieseld.conf", "[dieseld]\nno equals sign\n");
	assert_int_equal(parse(&o, &err, (const char *const[]){"--config", path, NULL}), -EINVAL);
	options_free(&o);
	unlink(path);
	assert_int_equal(parse(&o, &err, (const char *const[]){"--config", path, NULL}), -ENOENT);
	options_free(&o);
}

TEST(cluster_options_are_read_and_mistakes_named)
{
	static const struct {
		const char *arguments[6];
		const char *says;
	} wrong[] = {
	    {{"--cluster", "http://user:secret@host", NULL}, "redis://HOST"},
	    {{"--cluster", "redis://host", NULL}, "cluster-listen"},
	    {{"--cluster-limit", "1023K", NULL},
	     "cluster-limit: invalid value \"1023K\": must be 0 or a size"},
	    {{"--cluster-limit", "fast", NULL}, "cluster-limit: invalid value \"fast\": must be 0 or a size"},
	};
	struct daemon_options o;
	struct error err;

	assert_int_equal(parse(&o, &err, (const char *const[]){"--cluster-name", "a", NULL}), 0);
	assert_null(o.share.redis);
	options_free(&o);
	assert_int_equal(parse(&o, &err,
			       (const char *const[]){"--cluster", "redis://a", "--cluster-listen",
						     "127.0.0.1:1", "--cluster-limit", "100M", NULL}),
			 0);
	assert_int_equal(o.share.peer_bytes_per_s, UINT64_C(100) << 20);
	options_free(&o);
	assert_int_equal(parse(&o, &err, (const char *const[]){"--cluster", "off", NULL}), 0);
	assert_null(o.share.redis);
	options_free(&o);
	assert_int_equal(
	    parse(&o, &err,
		  (const char *const[]){"--cluster", "rediss://r", "--cluster-listen", "10.0.0.1:7700",
					"--cluster-key", "/k", "--cluster-advertise", "10.0.0.2:1",
					"--cluster-name", "a", NULL}),
	    0);
	assert_string_equal(o.share.redis, "rediss://r");
	assert_string_equal(o.share.listen, "10.0.0.1:7700");
	assert_string_equal(o.share.advertise, "10.0.0.2:1");
	assert_string_equal(o.share.node, "a");
	assert_string_equal(o.share.key_file, "/k");
	options_free(&o);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(parse(&o, &err, wrong[i].arguments), -EINVAL);
		assert_non_null(strstr(err.text, wrong[i].says));
		assert_null(strstr(err.text, "secret"));
		options_free(&o);
	}
}

static uint64_t memory_limit_bytes(const char *root)
{
	struct limits limits;

	limits_read(root, &limits);
	return limits.memory_limit_bytes;
}

TEST_IN_FOLDER(the_memory_limit_is_the_tightest_group_s)
{
	const char *root = *state;

	assert_int_equal(memory_limit_bytes(root), 0);
	make_folders(root, "proc/self");
	write_text(root, "proc/meminfo", "MemTotal:       4194304 kB\nMemFree: 1 kB\nMemAvailable: 1 kB\n");
	assert_int_equal(memory_limit_bytes(root), 4 * GIB);
	/* With version 2, the parent's limit counts too. */
	make_folders(root, "sys/fs/cgroup/a/b");
	write_text(root, "sys/fs/cgroup/cgroup.procs", "");
	write_text(root, "proc/self/cgroup", "0::/a/b\n");
	write_text(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
	write_text(root, "sys/fs/cgroup/a/memory.max", "1073741824\n");
	assert_int_equal(memory_limit_bytes(root), 1 * GIB);
	write_text(root, "sys/fs/cgroup/a/b/memory.max", "536870912\n");
	assert_int_equal(memory_limit_bytes(root), GIB / 2);
	/* Above memory.high, the kernel slows the service down. */
	write_text(root, "sys/fs/cgroup/a/memory.high", "402653184\n");
	write_text(root, "sys/fs/cgroup/a/b/memory.high", "max\n");
	assert_int_equal(memory_limit_bytes(root), 384 << 20);
	/* Version 1 exists in addition to it. */
	make_folders(root, "sys/fs/cgroup/memory/c");
	write_text(root, "proc/self/cgroup", "5:memory:/c\n1:name=systemd:/\n");
	write_text(root, "sys/fs/cgroup/memory/c/memory.limit_in_bytes", "268435456\n");
	write_text(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(memory_limit_bytes(root), GIB / 4);
}
