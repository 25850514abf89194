/* SPDX-License-Identifier: Apache-2.0 */
#include "profile_find.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/metadata.h"
#include "analyzer/timeline/calls.h"
#include "analyzer/trace/cxx_name.h"
#include "lib/sorted.h"

#define NO_CALL    0xffff
#define HASH_MIN   8 /* minimum number of digits of a hash, as in file names of wheels */
#define FRAMES_MAX PROFILE_FRAMES_MAX

static const struct profile_frame *frame_of(const struct profile_metadata *metadata, uint64_t key)
{
	return metadata->n_frames ? bsearch(&key, metadata->frames, metadata->n_frames,
					    sizeof(*metadata->frames), compare_u64)
				  : NULL;
}

size_t profile_frames(const struct profile_metadata *metadata, uint64_t key,
		      const struct profile_frame **frames)
{
	const struct profile_trace *trace =
	    key && metadata->n_traces
		? bsearch(&key, metadata->traces, metadata->n_traces, sizeof(*metadata->traces), compare_u64)
		: NULL;
	size_t n = 0;

	for (size_t i = 0; trace && i < trace->n_frames && n < FRAMES_MAX; i++) {
		frames[n] = frame_of(metadata, trace->frames[i]);
		n += frames[n] != NULL;
	}
	return n;
}

/* Returns the index of the '-' before a hash of hexadecimal digits; length: there is none. */
static size_t hash_begin(const char *name, size_t length)
{
	for (size_t i = 0; i + HASH_MIN < length; i++) {
		size_t n = 0, n_digits = 0;

		if (name[i] != '-')
			continue;
		while (i + 1 + n < length && isxdigit((unsigned char)name[i + 1 + n])) {
			n_digits += isdigit((unsigned char)name[i + 1 + n]) != 0;
			n++;
		}
		if (n >= HASH_MIN && n_digits && (i + 1 + n == length || name[i + 1 + n] == '.'))
			return i;
	}
	return length;
}

void profile_library_name(const char *file, char *name, size_t size)
{
	static const char *const ends[] = {".cpython-", ".abi3.so", ".so"};
	size_t length = strlen(file);

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		const char *end = strstr(file, ends[i]);

		if (end && end > file && (size_t)(end - file) < length)
			length = (size_t)(end - file);
	}
	length = hash_begin(file, length);
	snprintf(name, size, "%.*s", (int)(length < size ? length : size - 1), file);
}

static void library_of(const struct profile_frame *frame, char *name, size_t size)
{
	if (frame->kind == FRAME_INTERPRETER)
		snprintf(name, size, "Python");
	else
		profile_library_name(frame->library, name, size);
}

static void frame_text(const struct profile_frame *frame, char *text, size_t size)
{
	char library[64], function[200];

	if (frame->kind >= FRAME_PYTHON) {
		snprintf(library, sizeof(library), "%s", frame->library);
		snprintf(function, sizeof(function), "%s", frame->function);
	} else {
		library_of(frame, library, sizeof(library));
		cxx_name(frame->function, function, sizeof(function));
	}
	snprintf(text, size, function[0] ? "%s:%s" : "%s", library, function);
}

struct appended {
	char *text;
	size_t size, n;
};

static void append(struct appended *to, const char *frame)
{
	int n = snprintf(to->text + to->n, to->size - to->n, "%s%s", to->n ? ";" : "", frame);

	/* A frame that does not fit as a whole is left out. */
	if (n > 0 && (size_t)n < to->size - to->n)
		to->n += (size_t)n;
	to->text[to->n] = '\0';
}

/* Names the kernel's work for the thread. */
static void kernel_label(const struct profile_group *group, char *function, size_t size)
{
	const struct timeline_call call = {.kind = call_kind_of(group->syscall_nr), .nr = group->syscall_nr};

	if (group->syscall_nr == NO_CALL)
		snprintf(function, size, "page faults");
	else
		snprintf(function, size, "%s", call_describe(&call));
}

/* Charges the time to the kernel, the innermost C function, or the Python function that the interpreter
 * executes. */
static void charge(const struct profile_group *group, const struct profile_frame *native,
		   const struct profile_frame *python, struct profile_label *label)
{
	if (group->in_kernel) {
		snprintf(label->library, sizeof(label->library), "Linux");
		snprintf(label->file, sizeof(label->file), "Linux");
		kernel_label(group, label->function, sizeof(label->function));
		return;
	}
	if (native)
		library_of(native, label->library, sizeof(label->library));
	else if (python)
		snprintf(label->library, sizeof(label->library), "Python");
	snprintf(label->file, sizeof(label->file), "%s", label->library);
	if (native && (native->kind != FRAME_INTERPRETER || !python)) {
		cxx_name(native->function, label->function, sizeof(label->function));
	} else if (python) {
		snprintf(label->function, sizeof(label->function), "%s", python->function);
		snprintf(label->file, sizeof(label->file), "%s", python->library);
	}
}

void profile_label(const struct profile_metadata *metadata, const struct profile_group *group,
		   struct profile_label *ret_label)
{
	const struct profile_frame *native[FRAMES_MAX], *python[FRAMES_MAX];
	size_t n_native = profile_frames(metadata, group->native, native);
	size_t n_python = profile_frames(metadata, group->python, python), n_inner = 0;
	struct appended frames = {ret_label->frames, sizeof(ret_label->frames), 0};
	char text[400];

	memset(ret_label, 0, sizeof(*ret_label));
	charge(group, n_native ? native[0] : NULL, n_python ? python[0] : NULL, ret_label);
	if (n_python)
		frame_text(python[0], ret_label->caller, sizeof(ret_label->caller));
	for (size_t i = n_python; i > 0; i--) {
		frame_text(python[i - 1], text, sizeof(text));
		append(&frames, text);
	}
	/* Python frames replace the interpreter's own: only frames that the interpreter called are added. */
	while (n_inner < n_native && !(n_python && native[n_inner]->kind == FRAME_INTERPRETER))
		n_inner++;
	for (size_t i = n_inner; i > 0; i--) {
		frame_text(native[i - 1], text, sizeof(text));
		append(&frames, text);
	}
	if (group->in_kernel) {
		snprintf(text, sizeof(text), "Linux:%s", ret_label->function);
		append(&frames, text);
	}
	if (!frames.n)
		append(&frames, "not known");
}
