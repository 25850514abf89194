/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A recording is a file of samples, as records one after the other. Each record is complete in itself, so a
 * truncated or damaged file loses only the damaged records. A record, little endian:
 *
 * - struct top_recording_header, 40 bytes, whose last field is its checksum;
 * - stored_bytes of the sample's JSON (sample_json.h), compressed by zstd with a checksum.
 *
 * A record of a later version is skipped by its length. Other bytes are skipped up to the next header.
 * feed_replay_open() (ui/feed/feed.h) reads a recording.
 */

#include <stddef.h>
#include <stdint.h>

struct error;
struct top_recording_writer;
struct top_sample;

#define TOP_RECORDING_MAGIC     "DSLREEL\n"
#define TOP_RECORDING_VERSION   1
#define TOP_RECORDING_BYTES_MAX (16u << 20) /* maximum bytes of one sample's JSON; more means damage */

struct top_recording_header {
	uint8_t magic[8];
	uint32_t version;
	uint32_t reserved;
	uint64_t time_us; /* CLOCK_REALTIME */
	uint32_t stored_bytes, raw_bytes;
	uint64_t header_checksum; /* FNV-1a hash of the header's bytes before this field */
};

_Static_assert(sizeof(struct top_recording_header) == 40, "stored");

uint64_t top_recording_header_sum(const struct top_recording_header *header);

/* Creates a recording, or opens an existing one to append to it. -EEXIST: a file of another kind has this
 * name, and stays unchanged. */
int top_recording_create(const char *path, struct top_recording_writer **ret_writer, struct error *err);
/* Appends a record. After a failure (-ENOSPC and the like) the file ends with the previous record; do not
 * call this function again. */
int top_recording_write(struct top_recording_writer *writer, const struct top_sample *sample,
			struct error *err);
void top_recording_writer_close(struct top_recording_writer *writer);
