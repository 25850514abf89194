/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the daemon and the processes that open datasets say to each other: fixed structs, one a datagram,
 * between copies of one program (opener.h).
 *
 *   daemon                                            process
 *   its user, descriptor: the client's connection ->
 *                                                 <-  STARTED, descriptor: pidfd
 *                                                     takes OPEN_DATASET from the client's connection
 *                                                 <-  IDENTIFIED, descriptors: `chunks`, `snapshot`
 *   one byte: go on                               ->  (nothing more is done for a dataset that is served)
 *                                                 <-  COPIED, descriptor: the sealed copy
 *                                                     enters the sandbox
 *                                                 <-  VERIFIED
 *
 * FAILED comes instead of any but the first. What the process says after COPIED is not to be trusted: it has
 * read bytes from outside.
 */

#include "lib/error.h"
#include "daemon/storage/proof.h"

enum opener_reply_type {
	OPENER_STARTED = 1,
	OPENER_IDENTIFIED,
	OPENER_COPIED,
	OPENER_VERIFIED,
	OPENER_FAILED,
};

struct opener_reply {
	uint32_t type;
	int32_t code;    /* FAILED: negative errno, of error.text */
	int32_t sandbox; /* VERIFIED: 0, or the negative errno that kept the process out of a sandbox */
	struct error error;
	struct proof proof; /* IDENTIFIED; the descriptors in it mean nothing */
};
