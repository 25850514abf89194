/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A recording is a recording of samples: records one after the other. Each record is complete in itself, so a
 * truncated or damaged file loses only the damaged records. A record, little endian:
 *
 * - struct top_recording_header, 40 bytes, whose last field is its checksum;
 * - stored_bytes of the sample's JSON (sample_json.h), compressed by zstd with a checksum.
 *
 * A record of a later version is skipped by its length. Other bytes are skipped up to the next header.
 */

#include <stddef.h>
#include <stdint.h>

struct error;
struct top_recording_reader;
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

/* Creates a recording, or opens an existing one to append to it. -EEXIST: a file of another kind has this
 * name, and stays unchanged. */
int top_recording_create(const char *path, struct top_recording_writer **ret_writer, struct error *err);
/* Appends a record. After a failure (-ENOSPC and the like) the file ends with the previous record; do not
 * call this function again. */
int top_recording_write(struct top_recording_writer *writer, const struct top_sample *sample,
			struct error *err);
void top_recording_writer_close(struct top_recording_writer *writer);

/* Opens a recording. -ENOENT and the like; -EBADMSG: not a recording; -EPROTONOSUPPORT: all records were made
 * by a newer diesel-top. */
int top_recording_open(const char *path, struct top_recording_reader **ret_reader, struct error *err);
/* Opens a recording like top_recording_open(). Takes over the descriptor, also on failure. name is for error
 * texts. */
int top_recording_open_fd(int fd, const char *name, struct top_recording_reader **ret_reader,
			  struct error *err);
void top_recording_reader_close(struct top_recording_reader *reader);

/* Returns the number of records, at least one. Records are numbered from 0 in the order of the file. */
size_t top_recording_n(const struct top_recording_reader *reader);
double top_recording_time_s(const struct top_recording_reader *reader, size_t i);
/* Returns the last record that is not later than time_s, or 0 if all are later. */
size_t top_recording_find(const struct top_recording_reader *reader, double time_s);
/* Reads record i. -EBADMSG: the record is damaged. */
int top_recording_read(struct top_recording_reader *reader, size_t i, struct top_sample **ret_sample,
		       struct error *err);
/* Returns how many damaged or truncated records, and ranges of other bytes, were found so far. */
size_t top_recording_n_skipped(const struct top_recording_reader *reader);

/* Parses "14:03", "14:03:22" (of the day of base_s, local time), "2026-11-21T14:03[:22]", "+60" or "-60"
 * (seconds from base_s). -EINVAL. */
int top_recording_time_parse(const char *text, double base_s, double *ret_time_s);
