/* SPDX-License-Identifier: Apache-2.0 */
#include "python.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#define TEXT_MAX_CHARACTERS 4096

/* From offsetof() with each version's own headers. */
static const struct version {
	uint32_t version;
	struct python python;
} versions[] = {
    {0x0308, {{0, 32, 8, 8, 176, 24, 0, 24, 32, 0, 0, PYTHON_OWNER_NONE, {0}}, 104, 112, 36, 48, 72}},
    {0x0309, {{0, 32, 8, 8, 176, 24, 0, 24, 32, 0, 0, PYTHON_OWNER_NONE, {0}}, 104, 112, 36, 48, 72}},
    {0x030a, {{0, 32, 8, 8, 176, 24, 0, 24, 32, 0, 0, PYTHON_OWNER_NONE, {0}}, 104, 112, 36, 48, 72}},
    {0x030b, {{0, 40, 16, 8, 152, 56, 8, 48, 32, 69, 1, PYTHON_OWNER_NONE, {0}}, 112, 128, 48, 48, 72}},
    {0x030c, {{0, 40, 72, 8, 136, 56, 0, 8, 0, 70, 1, 3, {0}}, 112, 128, 48, 40, 56}},
};

/* _Py_DebugOffsets, at the start of _PyRuntime: words of 64 bits. First the structure... */
enum debug_offset {
	DEBUG_COOKIE,
	DEBUG_VERSION,
	DEBUG_FREE_THREADED,
	DEBUG_COUNT = 43,
};

/* ... followed by the offsets of the fields used here, if the version has them. */
struct debug_places {
	uint8_t interpreters_head, threads_head, thread_next, current_frame, thread_id;
	uint8_t frame_previous, frame_executable, frame_owner, code_filename, code_qualname;
};

static const struct debug_places places_313 = {5, 9, 21, 23, 24, 29, 30, 33, 35, 37};
static const struct debug_places places_314 = {5, 9, 24, 26, 27, 32, 33, 36, 40, 42};

#define CODE_FLAGS     48   /* Python 3.13 and 3.14 do not publish this offset */
#define CODE_GENERATOR 0x20 /* CO_GENERATOR */

#define OFFSET_MAX (1 << 20) /* larger than any of CPython's structures */

int python_read_process(pid_t pid, uint64_t address, void *data, size_t size)
{
	struct iovec here = {data, size};
	struct iovec there = {(void *)(uintptr_t)address, size};
	ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);

	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -EFAULT;
}

static int process_read(void *user, uint64_t address, void *data, size_t size)
{
	return python_read_process(*(const pid_t *)user, address, data, size);
}

struct python_memory python_memory_of(pid_t *pid)
{
	return (struct python_memory){process_read, pid};
}

static int describe_by_itself(uint32_t version, const struct debug_places *places, uint64_t runtime,
			      const struct python_memory *memory, struct python *ret_python)
{
	const uint8_t *used = (const uint8_t *)places;
	uint64_t offsets[DEBUG_COUNT];
	int r = memory->read(memory->user, runtime, offsets, sizeof(offsets));

	if (r < 0)
		return r;
	if (memcmp(&offsets[DEBUG_COOKIE], "xdebugpy", 8) || offsets[DEBUG_VERSION] >> 16 != version ||
	    offsets[DEBUG_FREE_THREADED])
		return -ENOTSUP;
	for (size_t i = 0; i < sizeof(*places); i++) {
		if (offsets[used[i]] > OFFSET_MAX)
			return -ENOTSUP;
	}
	*ret_python = (struct python){
	    .layout =
		{
		    .runtime = runtime,
		    .interpreters_head = (uint32_t)offsets[places->interpreters_head],
		    .threads_head = (uint32_t)offsets[places->threads_head],
		    .thread_next = (uint32_t)offsets[places->thread_next],
		    .thread_id = (uint32_t)offsets[places->thread_id],
		    .thread_frame = (uint32_t)offsets[places->current_frame],
		    .frame_previous = (uint32_t)offsets[places->frame_previous],
		    .frame_code = (uint32_t)offsets[places->frame_executable],
		    .frame_owner = (uint32_t)offsets[places->frame_owner],
		    .owner_skipped = 3,
		},
	    .code_filename = (uint32_t)offsets[places->code_filename],
	    .code_qualname = (uint32_t)offsets[places->code_qualname],
	    .code_flags = CODE_FLAGS,
	    .ascii_bytes = 40,
	    .compact_bytes = 56,
	};
	return 0;
}

int python_describe(uint32_t version, uint64_t runtime, const struct python_memory *memory,
		    struct python *ret_python)
{
	if (version == 0x030d)
		return describe_by_itself(version, &places_313, runtime, memory, ret_python);
	if (version == 0x030e)
		return describe_by_itself(version, &places_314, runtime, memory, ret_python);
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		if (versions[i].version != version)
			continue;
		*ret_python = versions[i].python;
		ret_python->layout.runtime = runtime;
		return 0;
	}
	return -ENOTSUP;
}

uint32_t python_version_of_name(const char *name)
{
	unsigned major, minor;
	int length = 0;

	if (!strncmp(name, "lib", 3))
		name += 3;
	if (sscanf(name, "python%1u.%2u%n", &major, &minor, &length) != 2)
		return 0;
	if (name[length] && name[length] != '.')
		return 0; /* python3.11-config, libpython3.7m.so */
	return major << 8 | minor;
}

static size_t put_utf8(uint32_t character, char *text, size_t space)
{
	unsigned char bytes[4];
	size_t n = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;

	if (n > space)
		return 0;
	if (n == 1)
		bytes[0] = (unsigned char)character;
	for (size_t i = n; n > 1 && i > 1; i--) {
		bytes[i - 1] = (unsigned char)(0x80 | (character & 0x3f));
		character >>= 6;
	}
	if (n > 1)
		bytes[0] = (unsigned char)((0xf00U >> n & 0xff) | character);
	memcpy(text, bytes, n);
	return n;
}

static uint32_t character_at(const uint8_t *data, size_t i, uint32_t width)
{
	uint16_t two;
	uint32_t four;

	if (width == 1)
		return data[i];
	if (width == 2) {
		memcpy(&two, data + 2 * i, sizeof(two));
		return two;
	}
	memcpy(&four, data + 4 * i, sizeof(four));
	return four > 0x10ffff ? '?' : four;
}

/* Reads the last characters of a str object, as many as fit. */
static int text_read(const struct python *python, const struct python_memory *memory, uint64_t object,
		     char *text, size_t size)
{
	uint8_t header[40], data[4 * 256];
	uint32_t state, width;
	uint64_t length, from, at;
	size_t n_written = 0, most = sizeof(data) / 4;
	int r = memory->read(memory->user, object, header, sizeof(header));

	if (r < 0)
		return r;
	memcpy(&length, header + 16, sizeof(length));
	memcpy(&state, header + 32, sizeof(state));
	width = state >> 2 & 7;
	if (length > TEXT_MAX_CHARACTERS || !(state >> 5 & 1) || (width != 1 && width != 2 && width != 4))
		return -EBADMSG;
	if (most > size - 1)
		most = size - 1;
	from = length > most ? length - most : 0;
	at = object + (state >> 6 & 1 ? python->ascii_bytes : python->compact_bytes) + from * width;
	if (length > from) {
		r = memory->read(memory->user, at, data, (size_t)(length - from) * width);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < length - from; i++)
		n_written += put_utf8(character_at(data, i, width), text + n_written, size - 1 - n_written);
	text[n_written] = '\0';
	return 0;
}

int python_code_read(const struct python *python, const struct python_memory *memory, uint64_t address,
		     struct python_code *ret_code)
{
	struct python_code code = {.generator = false};
	uint64_t filename, qualname;
	uint32_t flags;
	int r = memory->read(memory->user, address + python->code_filename, &filename, sizeof(filename));

	if (r == 0)
		r = memory->read(memory->user, address + python->code_qualname, &qualname, sizeof(qualname));
	if (r == 0)
		r = memory->read(memory->user, address + python->code_flags, &flags, sizeof(flags));
	if (r == 0)
		code.generator = flags & CODE_GENERATOR;
	if (r == 0)
		r = text_read(python, memory, filename, code.path, sizeof(code.path));
	if (r == 0)
		r = text_read(python, memory, qualname, code.function, sizeof(code.function));
	if (r == 0)
		*ret_code = code;
	return r;
}

const char *python_code_file(const struct python_code *code)
{
	const char *slash = strrchr(code->path, '/');

	return slash ? slash + 1 : code->path;
}
