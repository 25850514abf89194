/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/psi.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/proc.h"

#define PSI_MAX_BYTES 4096

static int parse_line(const char *text, const char *word, struct psi_line *ret_line)
{
	double avg10, avg60, avg300;
	uint64_t total_us;
	const char *line = text;
	size_t length = strlen(word);

	while (strncmp(line, word, length) || line[length] != ' ') {
		line = strchr(line, '\n');
		if (!line)
			return -ENOENT;
		line++;
	}
	if (sscanf(line + length, " avg10=%lf avg60=%lf avg300=%lf total=%" SCNu64, &avg10, &avg60, &avg300,
		   &total_us) != 4)
		return -EBADMSG;
	*ret_line = (struct psi_line){avg10 / 100, avg60 / 100, avg300 / 100, total_us * NS_PER_US};
	return 0;
}

int psi_read(const char *path, struct psi *ret_psi)
{
	_cleanup_(freep) char *text = NULL;
	struct psi psi = {0};
	int r = proc_read_file(path, PSI_MAX_BYTES, &text, NULL);

	if (r < 0)
		return r;
	if (parse_line(text, "some", &psi.some) < 0)
		return -EBADMSG;
	r = parse_line(text, "full", &psi.full);
	if (r == -EBADMSG)
		return r;
	psi.has_full = r == 0;
	*ret_psi = psi;
	return 0;
}
