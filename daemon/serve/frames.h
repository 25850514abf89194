/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The memory that batches are laid out in: frames, each with room for one batch. A session is alone in it,
 * or has it together with others of its group (group.h): then a batch that one of them has decoded is in the
 * memory that all of them map, and is given to each where it lies.
 *
 * Each session that joins brings as many frames as it has slots, and each slot has one frame at most. So
 * whatever the others hold, and for however long, there is a frame for each slot; and as much memory is in
 * use as the sessions are charged for. A frame keeps what it holds when all have let go of it, until it is
 * taken again: the one with the earliest batch goes first.
 *
 * Loop thread only, but for frames_prepare().
 */

#include "daemon/cache/cache.h"
#include "daemon/storage/shared_memory.h"

#define FRAME_NONE     UINT32_MAX
#define FRAMES_MEMBERS 8 /* there is room for so many sessions like the first */

enum frame_state {
	FRAME_ABSENT, /* without memory */
	FRAME_LIVE,
	FRAME_GOING, /* a worker gives its memory back to the system */
};

/* A batch that is complete and no error, in its frame. */
struct frame_batch {
	uint64_t epoch, index;
	uint32_t n_items;
	uint32_t n_all; /* with damaged samples that are left out, which stand behind the others */
	uint32_t n_damaged;
	uint32_t member; /* who decoded it */
	uint64_t job;    /* its number */
};

struct frame {
	struct pool_task task;
	struct frames *frames;
	enum frame_state state;
	uint32_t n_refs;
	bool is_new; /* nothing was written to it yet */
	bool holds;  /* `batch` is in it */
	bool had;    /* it was, when the frame was taken, and nothing else was written there yet */
	struct frame_batch batch;
};

struct frames {
	struct cache *cache;
	struct shared_memory memory;
	uint64_t frame_bytes;
	uint32_t n_frames; /* that the memory's size has room for */
	bool keeps;        /* somebody may want what a frame holds */
	uint32_t limit;    /* that its sessions brought */
	uint32_t n_live;   /* never more than that, but while somebody copies out of one */
	uint32_t n_going;
	uint32_t n_members, n_refs; /* sessions; and of frames */
	uint32_t last_member;
	struct frame frame[];
};

/* n_frames of frame_bytes, a multiple of the page size. keeps: the one with the earliest batch is used again
 * first, instead of one whose memory is warm. A session is to join at once. */
int frames_new(struct cache *cache, uint64_t frame_bytes, uint32_t n_frames, bool keeps, struct frames **ret);

/* A session with n slots joins. Returns its number, from 1, or 0: there is no room. */
uint32_t frames_join(struct frames *f, uint32_t n);
/* It leaves, with none of its frames in use: as many as it brought go, and with the last session all. */
void frames_leave(struct frames *f, uint32_t n);

/* A frame for one of its sessions' slots, with a reference; FRAME_NONE: not before a copy out of one, or its
 * way back to the system, has ended, which calls cache.handler.changed(). What it held is gone. */
uint32_t frames_take(struct frames *f);
/* The same of this one, which has no reference: whoever chose it may have the memory. */
void frames_take_this(struct frames *f, uint32_t frame);
/* Gives the memory of a frame without a reference back to the system. */
void frames_give_back(struct frames *f, uint32_t frame);
/* Who fills it, before it writes to the frame, on a worker. */
void frames_prepare(struct frames *f, uint32_t frame);
void frames_ref(struct frames *f, uint32_t frame);
void frames_unref(struct frames *f, uint32_t frame);

/* Who has a reference says what it was filled with. */
void frames_hold(struct frames *f, uint32_t frame, const struct frame_batch *batch);
/* The frame that holds this batch, or FRAME_NONE. */
uint32_t frames_find(const struct frames *f, uint64_t epoch, uint64_t index);

static inline uint8_t *frames_at(const struct frames *f, uint32_t frame)
{
	return f->memory.data + frame * f->frame_bytes;
}
