/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler_place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/python_stack.h"
#include "lib/clock.h"
#include "analyzer/trace/frame_work.h"

#define CODES_MAX 1024 /* a power of two, and several times the number of functions in a training loop */
/* After this time all code objects are read again: objects are freed, and their addresses are reused. */
#define FORGET_NS (5 * NS_PER_S)

struct known_code {
	uint64_t code; /* 0: free */
	enum sample_place place;
	bool step;   /* function of the backward pass or the optimizer */
	bool trains; /* a step was seen inside it, so it is the training loop, not a loader */
};

struct sampler_place {
	struct python_stack *stack;
	struct known_code known[CODES_MAX];
	size_t n_known;
	uint64_t forget_ns;
	struct known_code spare; /* used for a code object that does not fit into the table */
};

static enum stack_work work_of(const char *path, const char *function)
{
	const char *slash = strrchr(path, '/');

	return frame_work_of(slash ? slash + 1 : path, function);
}

/* Loaders whose next() is a Python function. Loaders that are built on one of these (Hugging Face's,
 * Lightning's) call its next(). */
static const struct loader {
	const char *folder;
	enum sample_place place;
} loaders[] = {
    {"/torch/utils/data/", SAMPLE_PLACE_NEXT},
    {"/torchdata/", SAMPLE_PLACE_NEXT},
    {"/diesel_loader/", SAMPLE_PLACE_DIESEL},
};

static enum sample_place place_of_next(const char *path)
{
	for (size_t i = 0; i < sizeof(loaders) / sizeof(loaders[0]); i++)
		if (strstr(path, loaders[i].folder))
			return loaders[i].place;
	return SAMPLE_PLACE_ITERATOR;
}

enum sample_place sampler_place_of(const char *path, const char *function, bool generator)
{
	switch (work_of(path, function)) {
	case STACK_COMPILE: return SAMPLE_PLACE_COMPILING;
	case STACK_STEP:
	case STACK_MODEL: return SAMPLE_PLACE_COMPUTING;
	case STACK_NEXT: return place_of_next(path);
	case STACK_IMPORT: return SAMPLE_PLACE_IMPORTING;
	case STACK_SAVE:
	case STACK_LOAD:
	case STACK_CUT: return SAMPLE_PLACE_OUTSIDE;
	case STACK_OTHER: break;
	}
	return generator ? SAMPLE_PLACE_ITERATOR : SAMPLE_PLACE_OUTSIDE;
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

/* Returns the code object's entry, valid until the next call; NULL: the code object cannot be read. */
static struct known_code *know(struct sampler_place *place, uint64_t code)
{
	size_t at = (size_t)(code >> 4) * 0x9e3779b1 % CODES_MAX;
	char path[256], function[192];
	struct known_code *known;
	bool generator;

	while (place->known[at].code && place->known[at].code != code)
		at = (at + 1) % CODES_MAX;
	known = &place->known[at];
	if (known->code)
		return known;
	if (python_stack_name(place->stack, code, path, sizeof(path), function, sizeof(function), &generator))
		return NULL;
	if (place->n_known < CODES_MAX / 2)
		place->n_known++;
	else
		known = &place->spare;
	*known = (struct known_code){.code = code,
				     .place = sampler_place_of(path, function, generator),
				     .step = work_of(path, function) == STACK_STEP};
	return known;
}

/* A generator within which a step was seen contains the training loop. */
static void learn(struct sampler_place *place, const uint64_t *codes, size_t n)
{
	bool step = false;

	for (size_t i = 0; i < n; i++) {
		struct known_code *known = codes[i] ? know(place, codes[i]) : NULL;

		if (!known)
			continue;
		known->trains |= step;
		step |= known->step;
	}
}

enum sample_place sampler_place_sample(struct sampler_place *place, uint64_t now_ns)
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
	learn(place, codes, (size_t)n);
	/* The outermost frame decides: transforms have modules in them, and modules have iterators. */
	for (ssize_t i = n; i-- > 0;) {
		const struct known_code *at = codes[i] ? know(place, codes[i]) : NULL;

		/* A frame that is just being entered or left cannot be read, so the frames around
		 * it decide. */
		if (!at)
			continue;
		if ((at->place == SAMPLE_PLACE_DIESEL || at->place == SAMPLE_PLACE_NEXT) &&
		    found != SAMPLE_PLACE_COMPUTING)
			return at->place;
		if (at->place == SAMPLE_PLACE_COMPILING && found != SAMPLE_PLACE_ITERATOR)
			return at->place;
		/* The model may import modules, and modules may train: the innermost of these frames
		 * counts. */
		if ((at->place == SAMPLE_PLACE_IMPORTING && found == SAMPLE_PLACE_COMPUTING) ||
		    (at->place == SAMPLE_PLACE_COMPUTING && found == SAMPLE_PLACE_IMPORTING))
			found = at->place;
		if (found == SAMPLE_PLACE_OUTSIDE && !(at->place == SAMPLE_PLACE_ITERATOR && at->trains))
			found = at->place;
	}
	return found;
}
