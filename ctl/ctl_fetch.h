/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The threads of `dieselctl fetch`, which read from the bucket: each order and each request is one range. */

#include "client/fetch_channel.h"
#include "dataset/store.h"

struct fetch_pool;

/* A connection to the daemon and its landing memory. Counted: orders have one each. */
struct fetch_link;
