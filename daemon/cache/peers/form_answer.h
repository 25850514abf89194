/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decoded forms on their way from one node to another (docs/protocol.md): what a peer answers to NET_FORMS.
 * Little endian. A head, an entry for each form, in the order of their samples, and the forms, each from the
 * next multiple of CODEC_FORM_ALIGN on.
 *
 * No snapshot vouches for a form. Its checksum is made where it is decoded, goes with it, and is compared
 * where it is used: so accidents on the way and in memory are found.
 *
 * Pure, but for form_key().
 */

#include <stdbool.h>
#include <stdint.h>

#include "dataset/checksum.h"
#include "image/recipe.h"
#include "net_frame.h"

#define FORM_ANSWER_MAGIC   "DSLFORM"
#define FORM_ANSWER_VERSION 1u
/* Of one answer. */
#define FORM_ANSWER_MAX 4096u

struct form_answer_head {
	char magic[8]; /* FORM_ANSWER_MAGIC with its terminator */
	uint32_t version;
	uint32_t n;
	struct checksum_128 key; /* form_key() */
	uint64_t xxh3;           /* of the head, with zeros here, and of all entries */
	uint64_t reserved[3];
};

struct form_answer_entry {
	uint32_t sample; /* its number in the chunk */
	uint32_t bytes;
	uint64_t offset;
	uint64_t xxh3; /* of the form */
};

_Static_assert(sizeof(struct form_answer_head) == 64, "sent");
_Static_assert(sizeof(struct form_answer_entry) == 24, "sent");

/* What forms must have in common to be the same, to the last bit: the recipe's key (recipe_form()), and the
 * programs and libraries that decode. */
struct checksum_128 form_key(const struct recipe *key);

/* Where the first form of an answer with n of them begins, and where the one behind one begins. */
uint64_t form_answer_first(uint32_t n);
uint64_t form_answer_next(uint64_t offset, uint32_t bytes);

/* The head of such an answer. */
void form_answer_head_fill(struct form_answer_head *head, const struct checksum_128 *key,
			   const struct form_answer_entry *entries, uint32_t n);

/* Whether `bytes` of data, which do not change meanwhile, are an answer to this question: forms of samples
 * among the runs alone, each once, which lie in it and do not overlap. The forms themselves are not looked
 * at. Returns how many there are, or -EBADMSG. */
int form_answer_check(const uint8_t *data, uint64_t bytes, const struct checksum_128 *key,
		      const struct net_range *runs, uint32_t n_runs);
/* The entry of one that was checked. */
struct form_answer_entry form_answer_entry(const uint8_t *data, uint32_t i);
/* Whether the form is what was decoded. */
bool form_answer_is_whole(const uint8_t *data, const struct form_answer_entry *entry);
