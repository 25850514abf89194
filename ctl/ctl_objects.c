/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl objects: writes and reads objects of a bucket for the Python that started it. */
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
				 "diesel_loader starts this command for what it writes to a bucket or reads "
				 "there: do not run it by hand");
	ctl_keep_secrets();
	return objects_serve(STDIN_FILENO, argv[optind]) < 0 ? CTL_FAILED : CTL_OK;
}

const struct option_verb ctl_objects = {
    .name = "objects",
    .arguments = "s3://BUCKET/PREFIX",
    .summary = "Write and read objects of a bucket for diesel_loader, which starts it",
    .help =
	"The process ends with the one that started it. Credentials and endpoint come from its environment "
	"and files.\n",
    .about =
	"Writes and reads checkpoints in a bucket for `diesel_loader.checkpoint` (`diesel_loader`(3)), and "
	"parts of objects for `dieselctl index` of formats that Python reads. Those start this process, and "
	"it ends with them. There is no reason to run it by hand.",
    .run = run,
};
