/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A reel of samples: records one after the other, each whole in itself, so that a file that was cut, or
 * damaged in the middle, loses only what is damaged. Format, little endian:
 *
 *   struct reel_header (40 bytes, checked by its last field), then stored_bytes of the sample's JSON
 *   (sample_json.h), compressed by zstd
 *   with its checksum
 *
 * A record of a later version is skipped by its length. What is no record is skipped up to the next header.
 */

#include <stddef.h>
#include <stdint.h>

struct error;
struct reel_reader;
struct reel_writer;
struct sample;

#define REEL_MAGIC     "DSLREEL\n"
#define REEL_VERSION   1
#define REEL_BYTES_MAX (16u << 20) /* of one sample's JSON; more can only be damage */

struct reel_header {
	uint8_t magic[8];
	uint32_t version;
	uint32_t reserved;
	uint64_t time_us; /* CLOCK_REALTIME */
	uint32_t stored_bytes, raw_bytes;
	uint64_t header_checksum; /* FNV-1a of the bytes before it */
};

_Static_assert(sizeof(struct reel_header) == 40, "stored");

/* A new file, or more records for one that is a recording; any other file is left alone (-EEXIST). */
int reel_create(const char *path, struct reel_writer **ret_writer, struct error *err);
/* -ENOSPC and the like: the file ends with the record before; call no more. */
int reel_write(struct reel_writer *writer, const struct sample *sample, struct error *err);
void reel_writer_close(struct reel_writer *writer);

/* -ENOENT, ...; -EBADMSG: not a recording; -EPROTONOSUPPORT: all of it is a newer diesel-top's. */
int reel_open(const char *path, struct reel_reader **ret_reader, struct error *err);
/* As reel_open; takes the descriptor over, also on failure. name: for errors. */
int reel_open_fd(int fd, const char *name, struct reel_reader **ret_reader, struct error *err);
void reel_reader_close(struct reel_reader *reader);

/* Records by their place in the file, from 0; at least one. */
size_t reel_n(const struct reel_reader *reader);
double reel_time_s(const struct reel_reader *reader, size_t i);
/* The last record that is not later than this; 0: all are. */
size_t reel_find(const struct reel_reader *reader, double time_s);
/* -EBADMSG: this one is damaged. */
int reel_read(struct reel_reader *reader, size_t i, struct sample **ret_sample, struct error *err);
/* Damaged or torn records, and stretches that are none, as far as they were met. */
size_t reel_n_skipped(const struct reel_reader *reader);

/* "14:03", "14:03:22" (of the day of base_s, local time), "2026-11-21T14:03[:22]", "+60", "-60" (seconds from
 * base_s). -EINVAL. */
int reel_time_parse(const char *text, double base_s, double *ret_time_s);
