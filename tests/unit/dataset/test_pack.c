/* SPDX-License-Identifier: Apache-2.0 */
/* Source, read-ahead and packer. */
#include "tests/support.h"

#include "dataset/dataset.h"
#include "dataset/pack.h"
#include "dataset/sample.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/write/read_ahead.h"
#include "dataset/write/source.h"
#include "lib/cleanup.h"

static int refuse(int code, const char *text, void *context)
{
	(void)text, (void)context;
	return code;
}

static int accept_all(int code, const char *text, void *context)
{
	++*(int *)context;
	return 0;
}

static int scan(const char *root, struct survey *survey, source_unreadable_callback *unreadable,
		void *context, struct pack_source **ret, struct error *err)
{
	return source_scan(
	    &(struct source_options){.root = root, .unreadable = unreadable, .context = context}, survey, ret,
	    err);
}

static void link_path(const char *root, const char *target, const char *name)
{
	_cleanup_(freep) char *path = path_in(root, name);

	assert_int_equal(symlink(target, path), 0);
}

TEST_IN_FOLDER(source_order_and_links)
{
	static const char *const expected[] = {"top", "a/1", "a-b/1", "b/linked", "b/dir/1", "b/dir/2"};
	struct survey survey = {0};
	struct pack_source *s;

	write_text(*state, "src/a/1", "x");
	write_text(*state, "src/a-b/1", "x");
	write_text(*state, "src/top", "x");
	write_text(*state, "src/b/x", "x");
	_cleanup_(freep) char *x = path_in(*state, "src/b/x"), *fifo = path_in(*state, "src/b/fifo"),
			      *root = path_in(*state, "src");

	unlink(x);
	write_text(*state, "elsewhere/1", "x");
	write_text(*state, "elsewhere/2", "xyz");
	link_path(*state, "../top", "src/b/linked");
	link_path(*state, "../../elsewhere", "src/b/dir");
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(scan(root, &survey, refuse, NULL, &s, NULL), 0);
	assert_int_equal(s->n_files, 6);
	assert_int_equal(s->n_other, 1);
	for (size_t i = 0; i < 6; i++) {
		assert_string_equal(source_path(s, &s->files[i]).text, expected[i]);
		assert_ptr_equal(source_find(s, source_path(s, &s->files[i])), &s->files[i]);
	}
	assert_int_equal(s->files[5].bytes, 3);
	assert_null(source_find(s, (struct path_text){"b", 1}));
	source_free(s);
	survey_free(&survey);
}

TEST_IN_FOLDER(troubles_of_a_source_name_the_file)
{
	struct error err = ERROR_INIT;
	struct survey survey = {0};
	struct pack_source *s;
	int n_told = 0;

	write_text(*state, "a/1", "x");
	link_path(*state, "..", "a/loop");
	assert_int_equal(scan(*state, &survey, refuse, NULL, &s, &err), -ELOOP);
	assert_non_null(strstr(err.text, "a/loop"));
	link_path(*state, "nowhere", "dangling");
	assert_int_equal(scan(*state, &survey, accept_all, &n_told, &s, &err), 0);
	assert_int_equal(n_told, 2);
	assert_int_equal(s->n_files, 1);
	source_free(s);
	survey_free(&survey);
	assert_int_equal(scan("/nowhere", &survey, refuse, NULL, &s, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nowhere"));
	source_free(NULL);
}

/* Starts the read-ahead of these files, which come in order and once each. */
static int start(const struct pack_source *s, const uint64_t *order, size_t n, unsigned n_threads,
		 uint64_t budget_bytes, uint64_t max_bytes, struct read_ahead **ret)
{
	const struct read_ahead_options options = {
	    .n_threads = n_threads, .budget_bytes = budget_bytes, .max_bytes = max_bytes};

	return read_ahead_new(s, order, n, &options, ret);
}

TEST_IN_FOLDER(files_are_read_ahead_in_order)
{
	enum { N = 3000 };
	uint64_t order[N];
	struct survey survey = {0};
	struct pack_source *s;
	struct read_ahead *ra;

	for (int i = 0; i < N; i++) {
		char name[32], text[32];

		snprintf(name, sizeof(name), "d/%05d", i);
		snprintf(text, sizeof(text), "%0*d", i % 20 + 1, i);
		write_text(*state, name, text);
		order[i] = (uint64_t)(N - 1 - i);
	}
	assert_int_equal(scan(*state, &survey, refuse, NULL, &s, NULL), 0);
	for (uint64_t budget = 1; budget < 5000; budget += 1111) {
		assert_int_equal(start(s, order, N, 7, budget, 15, &ra), 0);
		for (int i = 0; i < N; i++) {
			struct read_item item = read_ahead_next(ra);
			assert_ptr_equal(item.file, &s->files[N - 1 - i]);

			if (item.file->bytes > 15) {
				assert_int_equal(item.result, -EFBIG);
				continue;
			}
			assert_int_equal(item.result, 0);
			assert_int_equal(item.bytes, item.file->bytes);
			item.data[item.bytes] = '\0'; /* the buffer has one byte more */
			assert_int_equal(atoi((char *)item.data), N - 1 - i);
		}
		read_ahead_free(ra);
	}
	/* The read-ahead is freed in the middle. */
	assert_int_equal(start(s, order, N, 4, 100, 1000, &ra), 0);
	read_ahead_next(ra);
	read_ahead_free(ra);
	source_free(s);
	survey_free(&survey);
}

/* A file disappears, grows, or becomes something else after the walk. */
TEST_IN_FOLDER(a_file_that_changed_since_the_walk_is_noticed)
{
	static const uint64_t order[] = {0, 1, 2, 3};
	struct survey survey = {0};
	struct pack_source *s;
	struct read_ahead *ra;

	for (const char *const *name = (const char *const[]){"a", "b", "c", "d", NULL}; *name; name++)
		write_text(*state, *name, "1234");
	assert_int_equal(scan(*state, &survey, refuse, NULL, &s, NULL), 0);
	_cleanup_(freep) char *a = path_in(*state, "a"), *b = path_in(*state, "b");

	unlink(a);
	unlink(b);
	assert_int_equal(mkfifo(b, 0600), 0);
	write_text(*state, "c", "123456789");
	assert_int_equal(start(s, order, 4, 1, 100, 1000, &ra), 0);
	assert_int_equal(read_ahead_next(ra).result, -ENOENT);
	assert_int_equal(read_ahead_next(ra).result, -ESTALE);
	struct read_item grown = read_ahead_next(ra);

	assert_int_equal(grown.result, 0); /* complete, with its present contents */
	assert_int_equal(grown.bytes, 9);
	assert_int_equal(read_ahead_next(ra).result, 0);
	read_ahead_free(ra);
	source_free(s);
	survey_free(&survey);
}

struct stopper {
	int countdown;
	int n_skipped, n_rewritten;
	struct survey survey;
};

static bool stop_after(void *context)
{
	struct stopper *s = context;

	return --s->countdown < 0;
}

static void count_skipped(const char *text, void *context)
{
	((struct stopper *)context)->n_skipped++;
}

static struct pack_options options_of(const char *source, const char *dataset, struct stopper *stopper)
{
	return (struct pack_options){
	    .source = source,
	    .dataset = dataset,
	    .chunk_bytes = CHUNK_MIN_BYTES,
	    .n_threads = 3,
	    .skipped = count_skipped,
	    .cancelled = stopper->countdown ? stop_after : NULL,
	    .context = stopper,
	    .survey = &stopper->survey,
	};
}

static void make_big_source(const char *root)
{
	_cleanup_(freep) char *text = malloc(100001);

	for (int i = 0; i < 200; i++) {
		char name[32];

		memset(text, 'a' + i % 26, 100000);
		text[100000] = '\0';
		snprintf(name, sizeof(name), "src/c%d/%d", i % 4, i);
		write_text(root, name, text);
	}
}

TEST_IN_FOLDER(interrupt_and_resume)
{
	_cleanup_(freep) char *source = path_in(*state, "src"), *dataset = path_in(*state, "ds");
	struct stopper stopper = {.countdown = 150};
	struct pack_options o = options_of(source, dataset, &stopper);
	struct pack_result result;
	struct error err = ERROR_INIT;
	struct dataset *d;

	make_big_source(*state);
	assert_int_equal(pack_run(&o, &result, &err), -ECANCELED);
	assert_non_null(strstr(err.text, "to continue"));
	assert_int_equal(dataset_open_version(dataset, 0, &d, NULL), -ENOENT);
	/* One of its files changes meanwhile. Its chunk is packed again, the others are not. */
	write_text(*state, "src/c0/0", "changed");
	stopper.countdown = 0;
	o = options_of(source, dataset, &stopper);
	assert_int_equal(pack_run(&o, &result, &err), 0);
	assert_int_equal(result.n_files + result.n_resumed, 200);
	assert_true(result.n_resumed > 0 && result.n_resumed < 150);
	assert_int_equal(dataset_open_version(dataset, 0, &d, NULL), 0);
	assert_int_equal(snapshot_info(dataset_snapshot(d))->n_samples, 200);
	assert_int_equal(snapshot_info(dataset_snapshot(d))->n_classes, 4);
	for (uint64_t i = 0; i < 200; i++) {
		struct snapshot_sample sample;
		static char data[100000];

		assert_int_equal(snapshot_sample_get(dataset_snapshot(d), i, &sample), 0);
		assert_int_equal(
		    sample_read(dataset_snapshot(d), dataset_store(d), &sample, data, sizeof(data), NULL), 0);
		int number = atoi(strchr(sample.path, '/') + 1);

		assert_int_equal(data[0], number ? 'a' + number % 26 : 'c');
	}
	dataset_close(d);
	survey_free(&stopper.survey);
}

TEST_IN_FOLDER(a_second_pack_appends)
{
	_cleanup_(freep) char *source = path_in(*state, "src"), *dataset = path_in(*state, "ds");
	struct stopper stopper = {0};
	struct pack_options o = options_of(source, dataset, &stopper);
	struct pack_result result;
	struct error err = ERROR_INIT;

	write_text(*state, "src/a/1", "one");
	write_text(*state, "src/a/2", "two");
	assert_int_equal(pack_run(&o, &result, &err), 0);
	assert_int_equal(pack_run(&o, &result, &err), -EEXIST);
	assert_non_null(strstr(err.text, "--append"));
	o.append = true;
	write_text(*state, "src/a/2", "three");
	write_text(*state, "src/b/3", "new");
	assert_int_equal(pack_run(&o, &result, &err), 0);
	assert_int_equal(result.n_files, 2);
	assert_int_equal(result.n_unchanged, 1);
	assert_int_equal(result.version, 2);
	/* If the source has a file where the dataset has a folder, the whole pack is refused. */
	char *folder = path_in(*state, "other");

	write_text(*state, "other/b", "file");
	o.source = folder;
	assert_int_equal(pack_run(&o, &result, &err), -EEXIST);
	assert_non_null(strstr(err.text, "'b'"));
	free(folder);
	survey_free(&stopper.survey);
}

/* Doubles a file, unless the file begins with a minus. */
static int twice(const void *data, size_t bytes, void **ret, size_t *ret_bytes, struct error *ret_note)
{
	if (bytes && *(const char *)data == '-')
		return error_set(ret_note, 7, "a minus");
	char *made = malloc(2 * bytes + 1);
	assert_non_null(made);
	memcpy(made, data, bytes);
	memcpy(made + bytes, data, bytes);
	*ret = made;
	*ret_bytes = 2 * bytes;
	return 0;
}

static void note_rewritten(const struct pack_rewritten *file, void *context)
{
	if (file->result == 7) {
		assert_string_equal(file->note->text, "a minus");
		assert_string_equal(file->path, "a/2");
		assert_int_equal(file->bytes, file->source_bytes);
	} else {
		assert_int_equal(file->bytes, 2 * file->source_bytes);
	}
	((struct stopper *)context)->n_rewritten++;
}

static void expect_sample(const char *dataset, const char *path, const char *expected)
{
	struct snapshot_sample sample;
	struct dataset *d;
	char data[64] = "";
	uint64_t number;

	assert_int_equal(dataset_open_version(dataset, 0, &d, NULL), 0);
	assert_int_equal(snapshot_find(dataset_snapshot(d), path, strlen(path), &number), 0);
	assert_int_equal(snapshot_sample_get(dataset_snapshot(d), number, &sample), 0);
	assert_int_equal(
	    sample_read(dataset_snapshot(d), dataset_store(d), &sample, data, sizeof(data), NULL), 0);
	assert_string_equal(data, expected);
	dataset_close(d);
}

TEST_IN_FOLDER(a_rewritten_file_is_known_by_its_own_size)
{
	_cleanup_(freep) char *source = path_in(*state, "src"), *dataset = path_in(*state, "ds");
	struct stopper stopper = {0};
	struct pack_options o = options_of(source, dataset, &stopper);
	struct pack_result result;
	struct error err = ERROR_INIT;

	write_text(*state, "src/a/1", "one");
	write_text(*state, "src/a/2", "-two");
	write_text(*state, "src/a/3", "");
	o.rewrite = twice;
	o.rewritten = note_rewritten;
	assert_int_equal(pack_run(&o, &result, &err), 0);
	assert_int_equal(stopper.n_rewritten, 3);
	assert_int_equal(result.bytes, 10);
	expect_sample(dataset, "a/1", "oneone");
	expect_sample(dataset, "a/2", "-two");
	o.append = true;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pack_run(&o, &result, &err), 0);
		assert_int_equal(result.n_files, 0);
		assert_int_equal(result.n_unchanged, 3);
		o.rewrite = NULL; /* existing samples stay, however they were packed */
	}
	write_text(*state, "src/a/1", "eleven"); /* as long as the stored contents */
	assert_int_equal(pack_run(&o, &result, &err), 0);
	assert_int_equal(result.n_files, 1);
	expect_sample(dataset, "a/1", "eleven");
	survey_free(&stopper.survey);
}

TEST_IN_FOLDER(a_resumed_pack_packs_again_what_differs)
{
	char *source = path_in(*state, "src"), *dataset = path_in(*state, "ds");
	struct stopper stopper = {.countdown = 150};
	struct pack_options o = options_of(source, dataset, &stopper);
	struct pack_result result;
	struct error err = ERROR_INIT;

	make_big_source(*state);
	o.rewrite = twice;
	assert_int_equal(pack_run(&o, &result, &err), -ECANCELED);
	stopper.countdown = 1000;
	assert_int_equal(pack_run(&o, &result, &err), 0);
	assert_true(result.n_resumed > 0);
	assert_int_equal(result.n_files + result.n_resumed, 200);
	free(dataset);

	dataset = path_in(*state, "other");
	o.dataset = dataset;
	stopper.countdown = 150;
	assert_int_equal(pack_run(&o, &result, &err), -ECANCELED);
	o.rewrite = NULL;
	stopper.countdown = 1000;
	assert_int_equal(pack_run(&o, &result, &err), 0);
	assert_int_equal(result.n_resumed, 0);
	assert_int_equal(result.n_files, 200);
	survey_free(&stopper.survey);
	free(source);
	free(dataset);
}

TEST_IN_FOLDER(an_impossible_pack_is_refused)
{
	_cleanup_(freep) char *source = path_in(*state, "src"), *dataset = path_in(*state, "ds");
	struct stopper stopper = {0};
	struct pack_options o = options_of(source, dataset, &stopper);
	struct pack_result result;
	struct error err = ERROR_INIT;

	assert_int_equal(pack_run(&o, &result, &err), -ENOENT);
	assert_non_null(strstr(err.text, source));
	assert_false(exists_in(*state, "ds"));
	mkdir(source, 0777);
	assert_int_equal(pack_run(&o, &result, &err), -ENODATA);
	assert_false(exists_in(*state, "ds"));
	write_text(*state, "src/a/1", "x");
	link_path(*state, "nowhere", "src/a/2");
	assert_int_equal(pack_run(&o, &result, &err), -ENOENT);
	assert_non_null(strstr(err.text, "a/2"));
	assert_false(exists_in(*state, "ds"));
	o.skip_unreadable = true;
	assert_int_equal(pack_run(&o, &result, &err), 0);
	assert_int_equal(stopper.n_skipped, 1);
	assert_int_equal(result.n_skipped, 1);
	/* The source lies within the dataset, or the dataset within the source. */
	char *inside = path_in(*state, "ds/chunks"), *within = path_in(*state, "src/ds");

	o.source = inside;
	o.append = true;
	assert_int_equal(pack_run(&o, &result, &err), -EINVAL);
	o.source = source;
	o.dataset = within;
	assert_int_equal(pack_run(&o, &result, &err), 0);
	assert_int_equal(result.n_files, 1);
	assert_int_equal(pack_run(&o, &result, &err), 0);
	assert_int_equal(result.n_files, 0);
	free(inside);
	free(within);
	survey_free(&stopper.survey);
}
