/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/path_order.h"

#include <string.h>

static size_t component_end(struct path_text p, size_t start)
{
	const char *slash = start < p.length ? memchr(p.text + start, '/', p.length - start) : NULL;

	return slash ? (size_t)(slash - p.text) : p.length;
}

/* The first difference of two paths: byte `at`, in the components that begin at `start`. */
struct parting {
	size_t at, start;
};

static struct parting find_parting(struct path_text a, struct path_text b)
{
	size_t shorter = a.length < b.length ? a.length : b.length;
	struct parting p = {0, 0};

	for (; p.at < shorter && a.text[p.at] == b.text[p.at]; p.at++)
		if (a.text[p.at] == '/')
			p.start = p.at + 1;
	return p;
}

static int compare_names(struct path_text a, size_t a_end, struct path_text b, size_t b_end, size_t at)
{
	if (at == a_end || at == b_end) /* one name is a prefix of the other */
		return (at != a_end) - (at != b_end);
	return (unsigned char)a.text[at] < (unsigned char)b.text[at] ? -1 : 1;
}

int path_order_compare(struct path_text a, struct path_text b)
{
	struct parting p = find_parting(a, b);

	if (p.at == a.length && p.at == b.length)
		return 0;
	size_t a_end = component_end(a, p.start), b_end = component_end(b, p.start);
	bool a_is_file = a_end == a.length, b_is_file = b_end == b.length;

	if (a_is_file != b_is_file)
		return a_is_file ? -1 : 1;
	return compare_names(a, a_end, b, b_end, p.at);
}

bool path_is_below(struct path_text path, struct path_text directory)
{
	if (directory.length == 0)
		return true;
	return path.length > directory.length && path.text[directory.length] == '/' &&
	       memcmp(path.text, directory.text, directory.length) == 0;
}

int path_order_compare_directory(struct path_text path, struct path_text directory)
{
	if (path_is_below(path, directory))
		return 0;
	struct parting p = find_parting(path, directory);
	size_t path_end = component_end(path, p.start);

	if (path_end == path.length) /* a file comes before directories */
		return -1;
	return compare_names(path, path_end, directory, component_end(directory, p.start), p.at);
}

size_t path_top_length(struct path_text path)
{
	size_t end = component_end(path, 0);

	return end == path.length ? 0 : end;
}
