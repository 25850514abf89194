/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs and arguments that Python runs (diesel_loader.importing). */
#include "ctl/ctl.h"

#include <stdio.h>
#include <string.h>

#include "ctl/formats/ctl_python.h"

#define DEFAULT_SHARD_BYTES (UINT64_C(256) << 20)
#define N_WORDS(array)      (sizeof(array) / sizeof(*(array)))

static const char *const formats[] = {
    "hf:", "parquet:", "mds:", "litdata:", "tfrecord:", "arrayrecord:", "csv:", "jsonl:"};

bool ctl_is_foreign(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		for (size_t k = 0; k < N_WORDS(formats); k++)
			if (strncmp(argv[i], formats[k], strlen(formats[k])) == 0)
				return true;
	return false;
}

/* Options of `export`, which are checked here. Python gets them as values in a fixed order. */
static const char *const formats_to[] = {"tree", "tar", "mds",
					 "parquet"}; /* in the order of the option's words */

struct export_options {
	uint32_t to;
	uint64_t shard_bytes;
	bool json;
};

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct export_options options = {.shard_bytes = DEFAULT_SHARD_BYTES};
	char bytes[24];
	int status;

	if (!ctl_options(verb, argc, argv, &options, &status))
		return status;
	if (argc - optind != 2)
		return ctl_usage(verb, "expected a dataset and a folder");
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)options.shard_bytes);
	return ctl_python(verb, "importing.main",
			  (char *[]){argv[0], argv[optind], argv[optind + 1], (char *)formats_to[options.to],
				     bytes, (char *)(options.json ? "json" : ""), NULL});
}

#define AT(member) .at = offsetof(struct export_options, member)

static const struct option_row export_rows[] = {
    {"to", option_set_choice, .letter = 't', AT(to), .says = "must be tree, tar, mds or parquet",
     .words = "tree|tar|mds|parquet", .value = "FORMAT", .usual = "tree",
     .help = "files in folders, tar shards of WebDataset, MDS, or Parquet"},
    {"shard-bytes", option_set_bytes, AT(shard_bytes), .least = 1 << 20, .most = (uint64_t)1 << 40,
     .value = "SIZE", .usual = "256M", .says = "must be a size from 1M", .help = "size of a shard"},
    {"json", option_set_flag, AT(json), .help = "print the result as a JSON object"},
};

#undef AT

const struct option_verb ctl_export = {
    .name = "export",
    .arguments = "DATASET FOLDER",
    .summary = "Write a dataset as files, tar shards, MDS or Parquet",
    .help = "Python does it: $DIESEL_PYTHON, else the python3 next to dieselctl, else the one in PATH,\n"
	    "with the package diesel_loader. An interrupted export continues with the same command.\n",
    .about =
	"Writes a dataset in another form, in the order of storage: files in folders (`tree`), tar shards "
	"as WebDataset reads them (`tar`), MosaicML's MDS (`mds`) or Parquet files (`parquet`). A dataset "
	"whose samples have no fields goes to `tree` or `tar`, one with fields to `tar`, `mds` or "
	"`parquet`. A shard gets its name when it is complete.\n"
	"Python does it: `DIESEL_PYTHON`, else the `python3` next to `dieselctl`, else the one in PATH, "
	"with the package `diesel_loader`.",
    OPTION_ROWS(export_rows),
    .takes = OPTION_FILE,
    .run = run,
};
