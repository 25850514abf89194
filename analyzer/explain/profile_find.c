/* SPDX-License-Identifier: Apache-2.0 */
#include "finders.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "analyzer/profile.h"
#include "analyzer/roles/roles.h"
#include "analyzer/shares/walk.h"
#include "analyzer/timeline/calls.h"
#include "analyzer/trace/cxx_name.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"
#include "bpf/metadata.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"

#define NO_CALL    0xffff
#define HASH_MIN   8 /* minimum number of digits of a hash, as in file names of wheels */
#define FRAMES_MAX METADATA_STACK_FRAMES_MAX

/* A distinct sample, and its number of occurrences. */
struct profile_group {
	uint64_t native, python; /* keys of traces; 0: none */
	uint64_t n_samples;
	uint16_t syscall_nr; /* NO_CALL: not in a system call */
	bool in_kernel;
};

/* The texts for one group, each cut if it is too long. */
struct profile_label {
	char library[64];   /* "libjpeg", "Python", "Linux"; "": not known */
	char function[200]; /* "": not known */
	char file[128];     /* library of the function, or its Python file */
	char caller[256];   /* "": no Python frame */
	char frames[8192];
};

static const struct profile_frame *frame_of(const struct profile_metadata *metadata, uint64_t key)
{
	return metadata->n_frames ? bsearch(&key, metadata->frames, metadata->n_frames,
					    sizeof(*metadata->frames), compare_u64)
				  : NULL;
}

/* Finds the known frames of a trace, innermost first; at most FRAMES_MAX. Returns
 * their number. */
static size_t profile_frames(const struct profile_metadata *metadata, uint64_t key,
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

/* "libjpeg-0e09f8ba.so.62.4.0" -> "libjpeg", "_imaging.cpython-311-x86_64-linux-gnu.so" ->
 * "_imaging". */
static void library_name(const char *file, char *name, size_t size)
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
		library_name(frame->library, name, size);
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

/* Makes readable names. Frames that the metadata lacks are left out. */
static void label_make(const struct profile_metadata *metadata, const struct profile_group *group,
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

/*
 * Finds the samples of preparing in which JPEG, PNG and WebP images are decoded or the decoded images
 * transformed. Names decide: of libraries, of Pillow's files and functions, of torchvision's classes. Code
 * with other names is not counted, whatever it does.
 *
 * Before Python 3.11 a frame has no class, so that torchvision's classes are not seen there; its functions
 * and Pillow's are.
 */

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with)
{
	size_t n = strlen(text), m = strlen(with);

	return n >= m && strcmp(text + n - m, with) == 0;
}

static bool is_one_of(const char *text, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(text, names[i]) == 0)
			return true;
	return false;
}

/* Returns the method's name from "Image.resize", or, before Python 3.11, from "resize". */
static const char *method_of(const char *function)
{
	const char *dot = strrchr(function, '.');

	return dot ? dot + 1 : function;
}

static bool is_codec(const struct profile_frame *f)
{
	static const char *const pillow[] = {"JpegImagePlugin.py", "PngImagePlugin.py", "WebPImagePlugin.py"};
	static const char *const libraries[] = {"libjpeg", "libturbojpeg", "libpng", "libwebp"};

	if (f->kind >= FRAME_PYTHON)
		return is_one_of(f->library, pillow, LENGTH(pillow));
	for (size_t i = 0; i < LENGTH(libraries); i++)
		if (begins(f->library, libraries[i]))
			return true;
	return false;
}

/* Returns true for decoders of formats that dieseld does not decode. */
static bool is_other_codec(const struct profile_frame *f)
{
	static const char *const libraries[] = {"libtiff", "libopenjp2", "libavif", "libheif"};

	if (f->kind >= FRAME_PYTHON)
		return ends(f->library, "ImagePlugin.py") && !is_codec(f);
	for (size_t i = 0; i < LENGTH(libraries); i++)
		if (begins(f->library, libraries[i]))
			return true;
	return false;
}

static bool is_decoding(const struct profile_frame *f)
{
	static const char *const pillow[] = {"open", "load", "convert", "copy", "draft"};

	if (is_codec(f))
		return true;
	if (f->kind < FRAME_PYTHON)
		return false;
	if (strcmp(f->library, "ImageFile.py") == 0)
		return true;
	if (strcmp(f->library, "image.py") == 0) /* torchvision.io */
		return begins(f->function, "decode_") || strcmp(f->function, "read_image") == 0;
	return strcmp(f->library, "Image.py") == 0 &&
	       is_one_of(method_of(f->function), pillow, LENGTH(pillow));
}

/* Returns true if a class of torchvision's transforms is at work; *ret_n: the length of its name. */
static bool is_class_at_work(const struct profile_frame *f, size_t *ret_n)
{
	static const char *const files[] = {"transforms.py",       "_geometry.py",     "_misc.py",
					    "_type_conversion.py", "_color.py",        "_augment.py",
					    "_deprecated.py",      "_container.py",    "augmentation.py",
					    "autoaugment.py",      "_auto_augment.py", "_presets.py"};
	static const char *const methods[] = {"forward", "__call__", "transform", "_transform"};
	const char *dot = f->kind >= FRAME_PYTHON ? strchr(f->function, '.') : NULL;

	if (!dot || !is_one_of(f->library, files, LENGTH(files)) ||
	    !is_one_of(dot + 1, methods, LENGTH(methods)))
		return false;
	*ret_n = (size_t)(dot - f->function);
	return true;
}

static bool is_class(const struct profile_frame *f, size_t n, const char *name)
{
	return strlen(name) == n && strncmp(f->function, name, n) == 0;
}

/* Returns true for transforms that dieseld runs: the methods of _Builder in diesel_loader/recipe/plan.py. */
static bool is_transform(const struct profile_frame *f)
{
	static const char *const classes[] = {"RandomResizedCrop",
					      "Resize",
					      "CenterCrop",
					      "RandomHorizontalFlip",
					      "RandomVerticalFlip",
					      "ToTensor",
					      "PILToTensor",
					      "ToImage",
					      "ToPureTensor",
					      "ToDtype",
					      "ConvertImageDtype",
					      "Normalize",
					      "ColorJitter",
					      "Grayscale",
					      "RandomGrayscale",
					      "RandomCrop",
					      "RGB",
					      "ImageClassification"};
	static const char *const files[] = {"functional.py", "_functional_pil.py", "functional_pil.py",
					    "_functional_tensor.py", "functional_tensor.py"};
	static const char *const functions[] = {
	    "resize", "crop",      "resized_crop",  "center_crop", "hflip",
	    "vflip",  "to_tensor", "pil_to_tensor", "normalize",   "convert_image_dtype"};
	static const char *const pillow[] = {"resize", "crop", "transpose", "thumbnail", "reduce"};
	size_t n;

	if (f->kind < FRAME_PYTHON)
		return false;
	if (is_class_at_work(f, &n)) {
		for (size_t i = 0; i < LENGTH(classes); i++)
			if (is_class(f, n, classes[i]))
				return true;
		return false;
	}
	if (strcmp(f->library, "Image.py") == 0)
		return is_one_of(method_of(f->function), pillow, LENGTH(pillow));
	return is_one_of(f->library, files, LENGTH(files)) &&
	       is_one_of(f->function, functions, LENGTH(functions));
}

/* Returns true for a transform of torchvision that dieseld does not run, except containers of other
 * transforms. */
static bool is_foreign(const struct profile_frame *f)
{
	size_t n;

	return is_class_at_work(f, &n) && !is_transform(f) && !is_class(f, n, "Compose") &&
	       !is_class(f, n, "RandomApply") && !is_class(f, n, "Transform");
}

static bool any(const struct profile_frame *const *frames, size_t n,
		bool (*is)(const struct profile_frame *f))
{
	for (size_t i = 0; i < n; i++)
		if (is(frames[i]))
			return true;
	return false;
}

/* Returns true if the Python stack of this key shows diesel_loader making a batch. */
static bool is_assembly(const struct profile_metadata *metadata, uint64_t key)
{
	const struct profile_frame *frames[FRAMES_MAX];
	size_t n = profile_frames(metadata, key, frames);

	for (size_t i = 0; i < n; i++)
		if (frames[i]->kind >= FRAME_PYTHON && strcmp(frames[i]->library, "assembly.py") == 0 &&
		    strcmp(method_of(frames[i]->function), "batch") == 0)
			return true;
	return false;
}

/* Adds the group's samples to the kind of work on images that they belong to, if any. */
static void images_add(const struct profile_metadata *metadata, const struct profile_group *group,
		       struct profile_images *images)
{
	const struct profile_frame *frames[2 * FRAMES_MAX];
	size_t n = profile_frames(metadata, group->native, frames);

	n += profile_frames(metadata, group->python, frames + n);
	if (any(frames, n, is_other_codec))
		return;
	if (any(frames, n, is_decoding)) {
		images->n_decode += group->n_samples;
		images->n_codec += any(frames, n, is_codec) ? group->n_samples : 0;
	} else if (any(frames, n, is_foreign)) {
		images->n_foreign += group->n_samples;
	} else if (any(frames, n, is_transform)) {
		images->n_transform += group->n_samples;
	}
}

/* Maximum number of rows: more would be too small to see. */
#define LIBRARIES_MAX 64
#define FUNCTIONS_MAX 256
#define STACKS_MAX    2000

/* Rows of a table. Their texts make them distinct. */
struct rows {
	struct profile_item *items;
	size_t n;
};

static int text_compare(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "");
}

static int row_compare(const void *left, const void *right)
{
	const struct profile_item *a = left, *b = right;
	int r = text_compare(a->name, b->name);

	if (r == 0)
		r = text_compare(a->library, b->library);
	return r != 0 ? r : text_compare(a->caller, b->caller);
}

static int count_compare(const void *left, const void *right)
{
	const struct profile_item *a = left, *b = right;

	if (a->n_samples != b->n_samples)
		return a->n_samples > b->n_samples ? -1 : 1;
	return row_compare(left, right);
}

static void row_free(struct profile_item *row)
{
	free(row->name);
	free(row->library);
	free(row->caller);
}

static void rows_free(struct rows *rows)
{
	for (size_t i = 0; i < rows->n; i++)
		row_free(&rows->items[i]);
	free(rows->items);
}

/* Texts are copied; "" becomes NULL. */
static int rows_add(struct rows *rows, const char *name, const char *library, const char *caller, uint64_t n)
{
	struct profile_item *row = &rows->items[rows->n++];

	*row = (struct profile_item){.n_samples = n};
	row->name = strdup(name);
	if (library && *library)
		row->library = strdup(library);
	if (caller && *caller)
		row->caller = strdup(caller);
	return row->name && (!library || !*library || row->library) && (!caller || !*caller || row->caller)
		   ? 0
		   : -ENOMEM;
}

/* Merges rows of one name, keeping the most frequent of the callers, and sorts the largest first. */
static void rows_merge(struct rows *rows)
{
	size_t n = 0;

	qsort(rows->items, rows->n, sizeof(*rows->items), row_compare);
	for (size_t i = 0; i < rows->n;) {
		struct profile_item merged = rows->items[i];
		uint64_t best = 0, sum = 0;
		size_t k = i, winner = i;

		while (k < rows->n && !text_compare(rows->items[k].name, merged.name) &&
		       !text_compare(rows->items[k].library, merged.library)) {
			size_t first = k;
			uint64_t of_caller = 0;

			for (; k < rows->n && !row_compare(&rows->items[k], &rows->items[first]); k++)
				of_caller += rows->items[k].n_samples;
			if (of_caller > best) {
				best = of_caller;
				winner = first;
			}
			sum += of_caller;
		}
		merged = rows->items[winner];
		for (size_t j = i; j < k; j++)
			if (j != winner)
				row_free(&rows->items[j]);
		merged.n_samples = sum;
		rows->items[n++] = merged;
		i = k;
	}
	rows->n = n;
	if (n)
		qsort(rows->items, rows->n, sizeof(*rows->items), count_compare);
}

/* Moves the first rows out of the table. */
static void rows_take(struct rows *rows, size_t max, struct profile_item **ret_items, size_t *ret_n)
{
	while (rows->n > max)
		row_free(&rows->items[--rows->n]);
	*ret_items = steal_pointer(rows->items);
	*ret_n = rows->n;
	rows->n = 0;
}

static int stacks_take(struct rows *rows, struct profile *profile)
{
	size_t n = rows->n < STACKS_MAX ? rows->n : STACKS_MAX;

	profile->stacks = calloc(n + 1, sizeof(*profile->stacks));
	if (!profile->stacks)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		profile->stacks[i] = (struct profile_stack){rows->items[i].name, rows->items[i].n_samples};
		rows->items[i].name = NULL;
	}
	profile->n_stacks = n;
	return 0;
}

static int rows_fill(const struct profile_metadata *metadata, const struct profile_group *groups,
		     size_t n_groups, struct rows *libraries, struct rows *functions, struct rows *stacks,
		     struct profile *profile)
{
	struct profile_label *label = malloc(sizeof(*label));
	int r = label ? 0 : -ENOMEM;

	for (size_t i = 0; i < n_groups && r == 0; i++) {
		uint64_t n = groups[i].n_samples;

		label_make(metadata, &groups[i], label);
		images_add(metadata, &groups[i], &profile->images);
		profile->n_samples += n;
		if (label->library[0])
			r = rows_add(libraries, label->library, NULL, label->caller, n);
		else
			profile->n_unknown += n;
		if (r == 0 && label->function[0])
			r = rows_add(functions, label->function, label->file, label->caller, n);
		if (r == 0)
			r = rows_add(stacks, label->frames, NULL, NULL, n);
	}
	free(label);
	return r;
}

/* Sums the groups up by library, function and stack. -ENOMEM. */
static int fold(const struct profile_metadata *metadata, const struct profile_group *groups, size_t n_groups,
		struct profile *profile)
{
	struct rows libraries = {0}, functions = {0}, stacks = {0};
	int r = -ENOMEM;

	libraries.items = calloc(n_groups + 1, sizeof(struct profile_item));
	functions.items = calloc(n_groups + 1, sizeof(struct profile_item));
	stacks.items = calloc(n_groups + 1, sizeof(struct profile_item));
	if (libraries.items && functions.items && stacks.items)
		r = rows_fill(metadata, groups, n_groups, &libraries, &functions, &stacks, profile);
	if (r == 0) {
		rows_merge(&libraries);
		rows_merge(&functions);
		rows_merge(&stacks);
		rows_take(&libraries, LIBRARIES_MAX, &profile->libraries, &profile->n_libraries);
		rows_take(&functions, FUNCTIONS_MAX, &profile->functions, &profile->n_functions);
		r = stacks_take(&stacks, profile);
	}
	rows_free(&libraries);
	rows_free(&functions);
	rows_free(&stacks);
	return r;
}

void profile_free(struct profile *profile)
{
	if (!profile)
		return;
	rows_free(&(struct rows){profile->libraries, profile->n_libraries});
	rows_free(&(struct rows){profile->functions, profile->n_functions});
	for (size_t i = 0; i < profile->n_stacks; i++)
		free(profile->stacks[i].frames);
	free(profile->stacks);
	free(profile);
}

/* Returns true if the trainer itself prepares data. If a loader delivers batches, the trainer only unpacks
 * them. */
static bool trainer_prepares(const struct data_waits *waits, uint64_t at_ns)
{
	size_t i;

	if (waits->loader != LOADER_INLINE && waits->loader != LOADER_DIESEL)
		return false;
	i = data_waits_from(waits, at_ns);
	return i < waits->n && waits->items[i].begin_ns <= at_ns;
}

/* Workers of diesel_loader share no pipe with the trainer, so they are recognised by their code. */
static bool is_diesel_worker(const struct study *study, const struct timeline_thread *thread,
			     const struct event *event)
{
	return study->waits->loader == LOADER_DIESEL && thread->tgid != study->roles->trainer->tgid &&
	       is_assembly(study->input->profile, event->stack.python);
}

static bool prepares(const struct study *study, const struct event *event)
{
	const struct timeline_thread *thread;
	enum role role;

	if (event->end_ns < study->window->begin_ns || event->end_ns >= study->window->end_ns)
		return false;
	thread = timeline_find(study->timeline, event->tid, event->end_ns);
	if (!thread)
		return false;
	role = role_of(study->timeline, study->roles, thread);
	switch (role) {
	case ROLE_WORKER:
	case ROLE_HANDOFF:
		if (event->end_ns < roles_started_ns(study->roles, thread))
			return false;
		break;
	case ROLE_TRAINER:
		if (!trainer_prepares(study->waits, event->end_ns))
			return false;
		break;
	case ROLE_LOADER: break;
	case ROLE_OTHER:
		if (!is_diesel_worker(study, thread, event))
			return false;
		break;
	case ROLE_HELPER: return false;
	}
	return !walk_fetch_calls(thread, role, event->end_ns, event->end_ns + 1);
}

static int group_compare(const void *left, const void *right)
{
	const struct profile_group *a = left, *b = right;

	if (a->native != b->native)
		return a->native < b->native ? -1 : 1;
	if (a->python != b->python)
		return a->python < b->python ? -1 : 1;
	if (a->in_kernel != b->in_kernel)
		return a->in_kernel ? 1 : -1;
	return a->syscall_nr < b->syscall_nr ? -1 : a->syscall_nr > b->syscall_nr;
}

/* Merges equal groups. Returns the number of remaining groups. */
static size_t groups_merge(struct profile_group *groups, size_t n)
{
	size_t n_merged = 0;

	qsort(groups, n, sizeof(*groups), group_compare);
	for (size_t i = 0; i < n; i++) {
		if (n_merged && !group_compare(&groups[n_merged - 1], &groups[i]))
			groups[n_merged - 1].n_samples += groups[i].n_samples;
		else
			groups[n_merged++] = groups[i];
	}
	return n_merged;
}

static int groups_collect(const struct study *study, struct profile_group **ret_groups, size_t *ret_n)
{
	const struct analysis_input *input = study->input;
	struct profile_group *groups;
	size_t n_samples = 0, n = 0;

	for (size_t i = 0; i < input->n_events; i++)
		n_samples += input->events[i].type == EVENT_STACK;
	groups = calloc(n_samples + 1, sizeof(*groups));
	if (!groups)
		return -ENOMEM;
	for (size_t i = 0; i < input->n_events; i++) {
		const struct event *event = &input->events[i];

		if (event->type == EVENT_STACK && prepares(study, event))
			groups[n++] = (struct profile_group){.native = event->stack.native,
							     .python = event->stack.python,
							     .n_samples = 1,
							     .syscall_nr = event->stack.syscall_nr,
							     .in_kernel = event->stack.in_kernel};
	}
	*ret_groups = groups;
	*ret_n = groups_merge(groups, n);
	return 0;
}

int profile_find(const struct study *study, struct profile **ret_profile)
{
	_cleanup_(freep) struct profile_group *groups = NULL;
	struct profile *profile;
	size_t n_groups = 0;
	int r = study->input->profile ? groups_collect(study, &groups, &n_groups) : 0;

	if (r < 0)
		return r;
	if (!n_groups) {
		*ret_profile = NULL;
		return 0;
	}
	profile = calloc(1, sizeof(*profile));
	if (!profile)
		return -ENOMEM;
	profile->rate_hz = study->input->profile->rate_hz;
	r = fold(study->input->profile, groups, n_groups, profile);
	if (r < 0)
		profile_free(profile);
	else
		*ret_profile = profile;
	return r;
}
