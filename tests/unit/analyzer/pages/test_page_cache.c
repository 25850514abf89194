/* SPDX-License-Identifier: Apache-2.0 */
/* Page cache use of a job: sums cut to the window, files and folders, and mapped files. */
#include "tests/unit/analyzer/script.h"

#include <math.h>

static struct script s; /* too large for the stack */

#define STEPS 10

/* Makes a job whose window is [0, 1000 * STEPS). Every step opens a file at its start. */
static void steps(void)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		script_call(&s, TRAINER, 1000 * i, 1000 * i + 2, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
		script_read_file(&s, TRAINER, 1000 * i + 2, 1000 * i + 98);
		script_step(&s, TRAINER, 1000 * i + 500);
	}
	script_exit(&s, TRAINER, 1000 * STEPS + 500);
}

/* Adds a record of the whole job over these ticks. */
static struct event *sum_add(uint16_t type, uint64_t begin_tick, uint64_t end_tick)
{
	struct event *event = script_add(&s, TRAINER, type, begin_tick, end_tick);

	event->tid = event->tgid = 0;
	return event;
}

static struct event *place_add(uint64_t inode, bool folder, uint64_t begin_tick, uint64_t end_tick)
{
	struct event *event = sum_add(EVENT_PLACE, begin_tick, end_tick);

	event->flags = folder ? EVENT_FLAG_FOLDER : 0;
	event->place.inode = inode;
	event->place.device = 0x800001;
	event->place.accessed_pages = 100;
	event->place.missed_pages = (uint32_t)inode;
	event->place.n_reads = 10;
	event->place.used_kib = 400;
	return event;
}

TEST(without_measurements_there_is_no_page_cache)
{
	steps();
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_null(analysis->page_cache);
}

TEST(sums_are_of_the_window)
{
	struct event *event;
	uint64_t half;

	steps();
	/* The records lie in the window, around its start with half of it, and before it. */
	for (unsigned int i = 0; i < 3; i++) {
		uint64_t begin = i == 0 ? 1000 : 0;

		event = sum_add(EVENT_PAGES, begin, begin + 1000);
		if (i) {
			event->start_ns = at(0) - (i == 1 ? 1000 : 2000) * TICK_NS;
			event->end_ns = i == 1 ? at(1000) : at(0) - 10;
		}
		event->pages.accessed_pages = 1000;
		event->pages.missed_pages = 400;
		event->pages.n_minor_faults = 20;
	}
	event = sum_add(EVENT_READS, 2000, 3000);
	event->reads.used_bytes = 1 << 20;
	event->reads.direct_bytes = 1 << 10;
	event->reads.network_bytes = 1 << 12;
	event->reads.n_reads = 77;
	event = sum_add(EVENT_READ_SIZES, 2000, 3000);
	event->sizes.first = 21;
	for (unsigned int k = 0; k < 7; k++)
		event->sizes.n[k] = 5;
	event = sum_add(EVENT_READ_SIZES, 2000, 3000);
	event->sizes.first = UINT32_MAX;
	event->sizes.n[0] = event->sizes.n[6] = 5;
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->recorded.n_malformed, 0);
	assert_non_null(analysis->page_cache);
	half = analysis->page_cache->accessed_pages;
	assert_int_equal(half, 1500);
	assert_int_equal(analysis->page_cache->missed_pages, 600);
	assert_int_equal(analysis->page_cache->mapped.n_minor_faults, 30);
	assert_true(fabs(page_cache_hit_ratio(analysis->page_cache->accessed_pages,
					      analysis->page_cache->missed_pages) -
			 0.6) < 1e-9);
	assert_int_equal(analysis->page_cache->n_reads, 77);
	assert_int_equal(analysis->page_cache->cold_bytes, 600 * 4096 + (1 << 10) + (1 << 12));
	assert_int_equal(analysis->page_cache->used_bytes, (1 << 20) + (1 << 12));
	assert_int_equal(analysis->page_cache->read_sizes[21], 5);
	assert_int_equal(analysis->page_cache->read_sizes[23], 5);
	assert_int_equal(analysis->page_cache->read_sizes[0], 0);
	assert_true(isnan(analysis->page_cache->mapped.random_ratio));
}

TEST(the_files_that_miss_most_are_listed)
{
	static const struct analysis_path paths[] = {
	    {30, 0x800001, false, "/data/a"}, {30, 0x800001, true, "/data"}, {30, 0x800002, false, "/other"}};
	struct analysis_input input = {
	    .root_tgid = TRAINER, .paths = paths, .n_paths = 3, .page_bytes = 4096};

	steps();
	sum_add(EVENT_PAGES, 1000, 2000);
	place_add(30, false, 1000, 2000);
	place_add(30, false, 2000, 3000);
	place_add(30, true, 2000, 3000);
	for (unsigned int i = 0; i < 2 * PAGE_CACHE_TOP_FILES; i++)
		place_add(i + 1 == 30 ? 999 : i + 1, false, 3000, 4000)->place.missed_pages = i % 25;
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, &input);
	assert_int_equal(analysis->page_cache->n_files, PAGE_CACHE_TOP_FILES);
	assert_string_equal(analysis->page_cache->files[0].path, "/data/a");
	assert_int_equal(analysis->page_cache->files[0].cold_bytes, 60 * 4096);
	assert_int_equal(analysis->page_cache->files[0].used_bytes, 800 << 10);
	assert_int_equal(analysis->page_cache->files[0].n_reads, 20);
	assert_string_equal(analysis->page_cache->files[1].path, "?");
	assert_int_equal(analysis->page_cache->n_folders, 1);
	assert_string_equal(analysis->page_cache->folders[0].path, "/data/");
	for (size_t i = 1; i < analysis->page_cache->n_files; i++)
		assert_true(analysis->page_cache->files[i].cold_bytes <=
			    analysis->page_cache->files[i - 1].cold_bytes);
}

/* Pages 0 and 1 follow each other, and 5 is right behind the pages that the fault at 1 had read. Pages 100
 * and 3 follow none. */
TEST(mapped_files_count_by_faults_and_order)
{
	static const uint64_t pages[] = {0, 1, 5, 100, 3};

	steps();
	sum_add(EVENT_PAGES, 1000, 2000)->pages.n_major_faults = 5;
	for (unsigned int i = 0; i < 5; i++) {
		struct event *event = script_add(&s, TRAINER, EVENT_FAULT, 1600 + 20 * i, 1610 + 20 * i);

		event->fault.inode = 7;
		event->fault.page = pages[i];
		event->fault.added_pages = i == 1 ? 4 : 1;
		event->fault.n_sleeps = 1;
		event->fault.n_wakeups = 2;
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->page_cache->mapped.n_major_faults, 5);
	assert_int_equal(analysis->page_cache->mapped.n_context_switches, 5);
	assert_int_equal(analysis->page_cache->mapped.n_wakeups, 10);
	assert_int_equal(analysis->page_cache->mapped.n_read_aheads, 1);
	assert_int_equal(analysis->page_cache->mapped.read_ahead_pages, 3);
	assert_true(fabs(analysis->page_cache->mapped.random_ratio - 0.5) < 1e-9);
}
