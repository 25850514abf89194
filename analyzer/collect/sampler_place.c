/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler_place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/python_stack.h"
#include "lib/clock.h"
#include "frame_work.h"

#define CODES_MAX 1024 /* a power of two, and several times the functions of a training loop */
/* Code objects come and go, and their addresses are reused. */
#define FORGET_NS (5 * NS_PER_S)

struct known_code {
	uint64_t code; /* 0: free */
	enum sample_place place;
};

struct sampler_place {
	struct python_stack *stack;
	struct known_code known[CODES_MAX];
	size_t n_known;
	uint64_t forget_ns;
};

/* Loaders whose next() is a Python function. Loaders that are built on one of them, as Hugging Face's and
 * Lightning's are, call it. */
static const struct loader {
	const char *folder;
	enum sample_place place;
} loaders[] = {
    {"/torch/utils/data/", SAMPLE_PLACE_NEXT},
    {"/torchdata/", SAMPLE_PLACE_NEXT},
    {"/diesel_loader/", SAMPLE_PLACE_DIESEL},
};

enum sample_place sampler_place_of(const char *path, const char *function)
{
	static const char next[] = "__next__";
	const char *slash = strrchr(path, '/');
	size_t length = strlen(function);

	if (frame_work_of(slash ? slash + 1 : path, function) == STACK_COMPILE)
		return SAMPLE_PLACE_COMPILING;
	if (length < strlen(next) || strcmp(function + length - strlen(next), next) != 0)
		return SAMPLE_PLACE_OUTSIDE;
	for (size_t i = 0; i < sizeof(loaders) / sizeof(loaders[0]); i++)
		if (strstr(path, loaders[i].folder))
			return loaders[i].place;
	return SAMPLE_PLACE_OUTSIDE;
}

int sampler_place_open(const char *root, pid_t pid, struct sampler_place **ret_place)
{
	struct sampler_place *place = calloc(1, sizeof(*place));
	int r;

	if (!place)
		return -ENOMEM;
	r = python_stack_open(root, pid, &place->stack);
	if (r < 0) {
		free(place);
		return r;
	}
	*ret_place = place;
	return 0;
}

void sampler_place_close(struct sampler_place *place)
{
	if (!place)
		return;
	python_stack_close(place->stack);
	free(place);
}

static enum sample_place place_of_code(struct sampler_place *place, uint64_t code)
{
	size_t at = (size_t)(code >> 4) * 0x9e3779b1 % CODES_MAX;
	char path[256], function[192];
	struct known_code *known;

	while (place->known[at].code && place->known[at].code != code)
		at = (at + 1) % CODES_MAX;
	known = &place->known[at];
	if (known->code)
		return known->place;
	if (python_stack_name(place->stack, code, path, sizeof(path), function, sizeof(function)))
		return SAMPLE_PLACE_UNKNOWN;
	if (place->n_known < CODES_MAX / 2) {
		*known = (struct known_code){code, sampler_place_of(path, function)};
		place->n_known++;
	}
	return sampler_place_of(path, function);
}

enum sample_place sampler_place_look(struct sampler_place *place, uint64_t now_ns)
{
	enum sample_place found = SAMPLE_PLACE_OUTSIDE;
	uint64_t codes[PYTHON_STACK_FRAMES_MAX];
	ssize_t n;

	if (now_ns >= place->forget_ns) {
		memset(place->known, 0, sizeof(place->known));
		place->n_known = 0;
		place->forget_ns = now_ns + FORGET_NS;
	}
	n = python_stack_walk(place->stack, codes);
	if (n <= 0)
		return SAMPLE_PLACE_UNKNOWN;
	for (ssize_t i = 0; i < n; i++) {
		enum sample_place at = codes[i] ? place_of_code(place, codes[i]) : SAMPLE_PLACE_OUTSIDE;

		/* A frame that is just being made or left cannot be read: the frames around it count. */
		if (at == SAMPLE_PLACE_NEXT || at == SAMPLE_PLACE_DIESEL)
			return at;
		if (at == SAMPLE_PLACE_COMPILING)
			found = at;
	}
	return found;
}
