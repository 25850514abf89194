/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl ranges: reads objects for the Python that finds their samples (diesel_loader.writing.objects). */
#include "ctl/ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataset/external.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"

#define CHANNEL        STDIN_FILENO
#define READ_BYTES_MAX (16u << 20)

/* A request; the name of the object follows. The reply is followed by the data, or by the text of the error.
 */
struct range_request {
	uint64_t offset;
	uint32_t bytes; /* 0: only the object's length and stamp */
	uint32_t name_length;
};

struct range_reply {
	int32_t result;
	uint32_t bytes;        /* that follow */
	uint64_t source_bytes; /* length of the object; 0 unless it was asked for */
	uint64_t stamp;
};

_Static_assert(sizeof(struct range_request) == 16 && sizeof(struct range_reply) == 24, "read by Python");

static int answer(const struct range_request *q, const char *name, void *data, struct range_reply *ret,
		  struct error *err)
{
	if (!external_is_registered(name))
		return error_set(err, -EINVAL,
				 "%s is not in a bucket that this dieselctl can read: use one with S3 "
				 "(the package, or the source tree)",
				 name);
	return q->bytes ? external_read_source(name, q->offset, data, q->bytes, &ret->stamp, err)
			: external_stat(name, &ret->source_bytes, &ret->stamp, err);
}

/* Serves one request. Returns 1, or 0 at the end of the requests; -errno: the channel is broken. */
static int serve(void *data)
{
	struct range_request q;
	struct range_reply reply = {0};
	struct error err = ERROR_INIT;
	char name[EXTERNAL_NAME_MAX + 1];
	size_t done;
	int r = fd_read(CHANNEL, &q, sizeof(q), &done);

	if (r < 0 || done < sizeof(q))
		return r;
	if (q.bytes > READ_BYTES_MAX || q.name_length > EXTERNAL_NAME_MAX)
		return -EPROTO;
	r = fd_read(CHANNEL, name, q.name_length, &done);
	if (r < 0 || done < q.name_length)
		return r;
	name[q.name_length] = '\0';
	reply.result = answer(&q, name, data, &reply, &err);
	reply.bytes = reply.result < 0 ? (uint32_t)strlen(err.text) : q.bytes;
	r = fd_send(CHANNEL, &reply, sizeof(reply));
	if (r == 0)
		r = fd_send(CHANNEL, reply.result < 0 ? err.text : data, reply.bytes);
	return r < 0 ? r : 1;
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	_cleanup_(freep) void *data = NULL;
	int status, r;

	if (!ctl_options(verb, argc, argv, NULL, &status))
		return status;
	if (argc != optind || !ctl_is_started_by_program(SOCK_STREAM))
		return ctl_usage(verb, "dieselctl index starts this command: do not run it by hand");
	ctl_keep_secrets();
	data = malloc(READ_BYTES_MAX);
	r = data ? 1 : -ENOMEM;
	while (r > 0)
		r = serve(data);
	return r < 0 ? CTL_FAILED : CTL_OK;
}

const struct option_verb ctl_ranges = {
    .name = "ranges",
    .summary = "Read parts of objects for dieselctl index, which starts it",
    .help =
	"The process ends with the command. Credentials and endpoint come from its environment and files.\n",
    .about = "Reads parts of objects for `dieselctl index` of formats that Python reads. That command starts "
	     "this process, and it ends with it. There is no reason to run it by hand.",
    .run = run,
};
