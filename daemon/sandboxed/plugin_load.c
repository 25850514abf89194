/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/capabilities.h"
#include "lib/file_open.h"

#define TEXT(of) #of
#define NAME(of) TEXT(of)

#define ALIGNMENT 64
#define MAX_ERRNO 4095
#define PATTERN   0xa5 /* fill byte between the output and the guard page */

static int check(const struct diesel_codec *c, struct error *err)
{
	if (c->abi != DIESEL_CODEC_ABI)
		return error_set(
		    err, -ELIBBAD,
		    "the codec was built for version %u of diesel_codec.h, but dieseld supports version %u",
		    c->abi, DIESEL_CODEC_ABI);
	if (c->bytes != sizeof(*c))
		return error_set(err, -ELIBBAD, "the codec's struct diesel_codec has %u bytes instead of %zu",
				 c->bytes, sizeof(*c));
	if (!c->name || !c->open || !c->decode)
		return error_set(err, -ELIBBAD, "the codec's name, open() or decode() is missing");
	return 0;
}

static int make_space(struct plugin_codec *p, uint64_t out_bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), pages = (out_bytes + page - 1) / page * page;
	uint8_t *all = mmap(NULL, pages + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (all == MAP_FAILED)
		return -ENOMEM;
	if (mmap(all + page, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	    MAP_FAILED)
		return -ENOMEM;
	p->pages = all + page;
	p->pages_bytes = pages;
	p->out_bytes = out_bytes;
	/* As near to the end of the pages as alignment permits. */
	p->out = p->pages + (pages - out_bytes) / ALIGNMENT * ALIGNMENT;
	memset(p->pages, PATTERN, pages);
	return 0;
}

int plugin_load(int fd, uint64_t out_bytes, struct plugin_codec *ret, struct error *err)
{
	const struct diesel_codec *codec;
	const char *why = "?", *colon;
	char path[FD_PATH_BYTES];
	void *object;
	int r;

	(void)capabilities_keep(0);
	fd_path(fd, path);
	object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!object)
		why = dlerror();
	close(fd);
	if (!object) {
		colon = strstr(why, ": "); /* skip our /proc path, which means nothing to the user */
		return error_set(err, -ELIBBAD, "the dynamic linker reports: %s",
				 colon && strncmp(why, path, strlen(path)) == 0 ? colon + 2 : why);
	}
	codec = dlsym(object, NAME(DIESEL_CODEC));
	if (!codec)
		return error_set(
		    err, -ELIBBAD,
		    "the file has no symbol " NAME(
			DIESEL_CODEC) ": it is not a codec, or was built for another version of dieseld");
	r = check(codec, err);
	if (r < 0)
		return r;
	if (out_bytes > 0 && make_space(ret, out_bytes) < 0)
		return error_errno(err, -ENOMEM, "no memory for the codec's output, %llu bytes",
				   (unsigned long long)out_bytes);
	ret->codec = codec;
	return 0;
}

static bool is_pattern(const uint8_t *from, const uint8_t *end)
{
	for (; from < end; from++) {
		if (*from != PATTERN)
			return false;
	}
	return true;
}

/* Converts the result of a codec's function to an error of ours. */
static int result_of(int r, struct diesel_codec_error *said, const char *function, struct error *err)
{
	said->text[sizeof(said->text) - 1] = '\0';
	if (r > 0 || r < -MAX_ERRNO)
		return error_set(err, -ELIBBAD,
				 "the codec's %s() returned %d, which is neither 0 nor a negative errno",
				 function, r);
	if (r < 0)
		return said->text[0] ? error_set(err, r, "%s", said->text)
				     : error_errno(err, r, "the codec's %s() fails", function);
	return 0;
}

int plugin_open(struct plugin_codec *p, const char *options, uint32_t *ret_type, struct recipe_codec *codec,
		struct error *err)
{
	struct diesel_codec_output output = {.type = UINT32_MAX};
	struct diesel_codec_error said = {.text = ""};
	int r = result_of(p->codec->open(options, &output, &p->state, &said), &said, "open", err);
	const char *wrong;

	if (r < 0)
		return r;
	codec->n_dimensions = output.n_dimensions;
	memset(codec->dimensions, 0, sizeof(codec->dimensions));
	for (uint32_t i = 0; i < output.n_dimensions && i < RECIPE_MAX_DIMENSIONS; i++)
		codec->dimensions[i] = output.dimensions[i];
	wrong = recipe_check_output(output.type, codec);
	if (wrong)
		return error_set(err, -ELIBBAD, "%s", wrong);
	*ret_type = output.type;
	return 0;
}

int plugin_decode(struct plugin_codec *p, const uint8_t *data, uint64_t bytes, uint64_t seed,
		  struct error *err)
{
	const struct diesel_codec_sample sample = {.data = data, .bytes = bytes, .seed = seed};
	struct diesel_codec_error said = {.text = ""};
	uint8_t *end = p->out + p->out_bytes, *pages_end = p->pages + p->pages_bytes;
	int r;

	memset(p->out, 0, p->out_bytes);
	r = p->codec->decode(p->state, &sample, p->out, &said);
	if (!is_pattern(p->pages, p->out) || !is_pattern(end, pages_end)) {
		memset(p->pages, PATTERN, p->pages_bytes);
		return error_set(err, -ELIBBAD, "the codec's decode() writes outside of its output");
	}
	return result_of(r, &said, "decode", err);
}

_Static_assert(DIESEL_CODEC_MAX_DIMENSIONS == RECIPE_MAX_DIMENSIONS, "ABI");
_Static_assert(DIESEL_CODEC_UINT8 == (int)RECIPE_UINT8 && DIESEL_CODEC_FLOAT32 == (int)RECIPE_FLOAT32 &&
		   DIESEL_CODEC_FLOAT16 == (int)RECIPE_FLOAT16 &&
		   DIESEL_CODEC_BFLOAT16 == (int)RECIPE_BFLOAT16 && DIESEL_CODEC_INT8 == (int)RECIPE_INT8 &&
		   DIESEL_CODEC_INT16 == (int)RECIPE_INT16 && DIESEL_CODEC_INT32 == (int)RECIPE_INT32 &&
		   DIESEL_CODEC_INT64 == (int)RECIPE_INT64 && DIESEL_CODEC_FLOAT64 == (int)RECIPE_FLOAT64,
	       "ABI");
_Static_assert(sizeof(struct diesel_codec) == 32 && sizeof(struct diesel_codec_output) == 36 &&
		   sizeof(struct diesel_codec_sample) == 24 && sizeof(struct diesel_codec_error) == 240,
	       "ABI");
