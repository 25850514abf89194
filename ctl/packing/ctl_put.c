/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl put: writes a dataset for the program that started it (client/put_channel.h), from samples that
 * the program sends one by one. */
#include "ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/put_channel.h"
#include "dataset/chunk.h"
#include "dataset/compress.h"
#include "dataset/meta.h"
#include "dataset/pack.h"
#include "dataset/writer.h"

#define CHANNEL    STDIN_FILENO
#define READ_BYTES ((size_t)1 << 20)

/* Buffer for received bytes. The bytes [from, to) are not parsed yet. */
struct input {
	unsigned char *data;
	size_t from, to, n_allocated;
};

/* Makes `bytes` bytes available. Returns 1, or 0 if the channel ends before that; -errno. */
static int have(struct input *in, size_t bytes)
{
	if (in->to - in->from >= bytes)
		return 1;
	size_t wanted = bytes > READ_BYTES ? bytes : READ_BYTES;

	if (in->from)
		memmove(in->data, in->data + in->from, in->to - in->from);
	in->to -= in->from;
	in->from = 0;
	if (wanted > in->n_allocated) {
		unsigned char *grown = realloc(in->data, wanted);

		if (!grown)
			return -ENOMEM;
		in->data = grown;
		in->n_allocated = wanted;
	}
	while (in->to < bytes) {
		ssize_t n = read(CHANNEL, in->data + in->to, in->n_allocated - in->to);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 && errno != ECONNRESET ? -errno : 0;
		in->to += (size_t)n;
	}
	return 1;
}

static int say(int result, uint64_t version, uint32_t n_layout, const char *text)
{
	struct put_reply reply = {.result = result, .version = version, .n_layout = n_layout};

	snprintf(reply.text, sizeof(reply.text), "%s", text);
	return send(CHANNEL, &reply, sizeof(reply), MSG_NOSIGNAL) == sizeof(reply) ? 0 : -EPIPE;
}

/* Reads one message. Returns 1: a sample; 0: the request to commit; -EPIPE: the channel has ended. */
static int take_sample(struct input *in, struct writer *w, struct error *err)
{
	struct put_record record;
	int r = have(in, sizeof(record));

	if (r > 0)
		memcpy(&record, in->data + in->from, sizeof(record));
	if (r > 0 && record.path_length == 0)
		return 0;
	if (r > 0 && (record.path_length > CHUNK_NAME_MAX || record.bytes > CHUNK_SAMPLE_MAX_BYTES ||
		      record.layout >= CHUNK_N_LAYOUTS))
		return error_set(err, -EPROTO,
				 "the program that puts samples has another version of diesel: install the "
				 "same version of both");
	if (r > 0)
		r = have(in, sizeof(record) + record.path_length + record.bytes);
	if (r <= 0)
		return r < 0 ? error_errno(err, r, "cannot take a sample") : -EPIPE;
	const unsigned char *at = in->data + in->from + sizeof(record);
	struct chunk_sample sample = {
	    .path = (const char *)at,
	    .path_length = record.path_length,
	    .data = at + record.path_length,
	    .bytes = record.bytes,
	    .mode = record.mode,
	    .mtime_ns = record.mtime_ns,
	};

	in->from += sizeof(record) + record.path_length + record.bytes;
	r = writer_set_layout(w, (enum chunk_layout)record.layout, (struct columns){0}, err);
	if (r == 0)
		r = writer_add(w, &sample, err);
	return r < 0 ? r : 1;
}

static int take_all(struct writer *w, uint64_t *ret_n, struct error *err)
{
	struct input in = {0};
	uint64_t n = 0;
	int r;

	while ((r = take_sample(&in, w, err)) > 0)
		n++;
	free(in.data);
	if (r == 0)
		*ret_n = n;
	return r;
}

/* Sets the chunk size. The error text fits a program that puts samples, and names no command-line option. */
static int set_chunk_bytes(void *options, const struct option_row *row, const char *value, struct error *err)
{
	return option_set_bytes(options, row, value, NULL) == 0
		   ? 0
		   : error_set(err, -EINVAL, "chunks of %s bytes: must be a size from 4 MiB to 64 MiB",
			       value);
}

/* Parses the options. Returns errors in err, for the channel, because nobody reads standard error. */
static int parse(const struct option_verb *verb, int argc, char **argv, struct pack_options *o,
		 struct error *err)
{
	int r = option_parse(verb, argc, argv, o, err);

	if (r == 0 && argc != optind + 1)
		return error_set(err, -EINVAL, "expected the name of a dataset");
	if (r == 0 && o->shared && !o->append)
		return error_set(err, -EINVAL, "%s: several writers at once only append: add append",
				 argv[optind]);
	if (r == 0)
		o->dataset = argv[optind];
	return r;
}

/* Returns the layout of the dataset's samples + 1, or 0. */
static int n_layout_of(struct writer *w, uint32_t *ret, struct error *err)
{
	enum chunk_layout layout;
	int r = writer_known_layout(w, &layout, err);

	*ret = r > 0 ? (uint32_t)layout + 1 : 0;
	return r < 0 ? r : 0;
}

static int write_dataset(const struct pack_options *o, struct error *err)
{
	struct writer_result committed = {0};
	struct writer *w = NULL;
	uint32_t n_layout = 0;
	uint64_t n = 0;
	int r = pack_open(o, &w, err);

	if (r == 0)
		r = n_layout_of(w, &n_layout, err);
	if (r == 0)
		r = say(0, 0, n_layout, "");
	if (r == 0)
		r = take_all(w, &n, err);
	/* Commits nothing if nothing was put into a new dataset, so that no dataset remains. */
	if (r == 0 && (writer_info(w)->version || n || o->shared))
		r = pack_commit(o, &w, &committed, err);
	(void)say(r, committed.version, 0, r < 0 ? err->text : "");
	(void)shutdown(CHANNEL, SHUT_RD); /* the program need not wait until all files are removed */
	if (r < 0 && w)
		writer_discard(w);
	writer_free(w);
	return r;
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct pack_options o = {
	    .chunk_bytes = CHUNK_DEFAULT_BYTES, .command = ctl_command(), .layout = CHUNK_N_LAYOUTS};
	struct error err = ERROR_INIT;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
		return ctl_help(verb);
	if (!ctl_is_started_by_program(SOCK_STREAM))
		return ctl_usage(verb, "a program that writes a dataset starts this command: do not run it "
				       "by hand");
	int r = ctl_detach();

	if (r < 0)
		error_errno(&err, r, "cannot start the process that writes the dataset");
	if (r == 0)
		r = parse(verb, argc, argv, &o, &err);
	if (r < 0)
		(void)say(r, 0, 0, err.text);
	else
		r = write_dataset(&o, &err);
	return r < 0 ? CTL_FAILED : CTL_OK;
}

#define AT(member) .at = offsetof(struct pack_options, member)

static const struct option_row put_rows[] = {
    {"append", option_set_flag, AT(append), .help = "add to a dataset"},
    {"chunk-size", set_chunk_bytes, AT(chunk_bytes), .least = CHUNK_MIN_BYTES, .most = CHUNK_MAX_BYTES,
     .value = "BYTES", .usual = "8M", .help = "4 MiB to 64 MiB"},
    CTL_ROW_DIGEST(AT(keep_digests), .help = "keep a SHA-256 of each chunk"),
    CTL_ROW_META(AT(meta_url), .help = "keep the metadata on a Redis server"),
    {"shared", option_set_flag, AT(shared),
     .help = "with --append: one of several processes that write to a folder at the same time"},
    CTL_ROW_ZSTD(AT(level)),
};

#undef AT

const struct option_verb ctl_put = {
    .name = "put",
    .arguments = "DATASET",
    .summary = "Write a dataset for a program (diesel_loader.create()), which starts it",
    .help = "The process ends with the program. Options are those of dieselctl pack.\n",
    .about = "Writes a dataset for a program that puts samples into it, by `diesel_loader.create()` in "
	     "Python (`diesel_loader`(3)) or `diesel_writer_open()` in C (`libdiesel`(3)). The program "
	     "starts this process, and it ends with the program's writer. Running it by hand has no use.",
    OPTION_ROWS(put_rows),
    .takes = OPTION_FILE,
    .run = run,
};
