/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl objects: writes and reads checkpoints in a bucket for the job that started it. */
#include "ctl.h"

#include <sys/socket.h>
#include <unistd.h>

#include "ctl/objects.h"

static int run(const struct option_verb *verb, int argc, char **argv)
{
	int status;

	if (!ctl_options(verb, argc, argv, NULL, &status))
		return status;
	if (argc != optind + 1)
		return ctl_usage(verb, "expected the URL of a bucket");
	if (!ctl_is_started_by_program(SOCK_SEQPACKET))
		return ctl_usage(verb,
				 "a job starts this command when it writes checkpoints to a bucket: do not "
				 "run it by hand");
	ctl_keep_secrets();
	return objects_serve(STDIN_FILENO, argv[optind]) < 0 ? CTL_FAILED : CTL_OK;
}

const struct option_verb ctl_objects = {
    .name = "objects",
    .arguments = "s3://BUCKET/PREFIX",
    .summary = "Write and read checkpoints in a bucket for a job, which starts it",
    .help = "The process ends with the job. Credentials and endpoint come from its environment and files.\n",
    .about =
	"Writes and reads checkpoints in a bucket for `diesel_loader.checkpoint` (`diesel_loader`(3)). A job "
	"with such checkpoints starts this process, and it ends with the job. There is no reason to run "
	"it by hand.",
    .run = run,
};
