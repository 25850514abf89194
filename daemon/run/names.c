/* SPDX-License-Identifier: Apache-2.0 */
#include "names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/log.h"

#define TICK_MS     1000
#define PAUSE_S     5
#define PAUSE_MAX_S 300

struct name_search {
	struct cache_quotas quotas;
	struct admin_choice admin;
	atomic_bool is_done;
};

static void *search(void *user)
{
	struct name_search *s = user;

	cache_quotas_find(&s->quotas);
	if (s->admin.is_unknown && admin_find_user(s->admin.name, &s->admin.uid) == 0 &&
	    s->admin.uid != admin_overflow_id("uid"))
		s->admin.is_unknown = false;
	atomic_store(&s->is_done, true);
	return NULL;
}

static void start_search(struct unknown_names *n)
{
	struct name_search *s = malloc(sizeof(*s));
	pthread_t thread;

	if (!s)
		return;
	*s = (struct name_search){.quotas = n->server->serving.cache.quotas, .admin = *n->admin};
	if (pthread_create(&thread, NULL, search, s) != 0) {
		free(s);
		return;
	}
	pthread_detach(thread);
	n->search = s;
}

/* Returns how many names are not known. */
static uint32_t count(const struct unknown_names *n)
{
	const struct cache_quotas *q = &n->server->serving.cache.quotas;
	uint32_t unknown = n->admin->is_unknown;

	for (uint32_t i = 0; i < q->n; i++)
		unknown += q->rows[i].is_unknown;
	return unknown;
}

static void take(struct unknown_names *n, struct name_search *s)
{
	struct cache_quotas quotas = n->server->serving.cache.quotas;
	uint32_t before = count(n);

	cache_quotas_remember(&quotas, &s->quotas);
	server_set_quotas(n->server, &quotas);
	if (n->admin->is_unknown && !s->admin.is_unknown) {
		*n->admin = s->admin;
		admin_choose(n->admin);
	}
	if (count(n) == 0)
		log_info(
		    "all names in cache-quota and admin-user are known now, and their settings in force");
	else if (count(n) < before)
		log_info("%u of the names in cache-quota and admin-user are still unknown", count(n));
}

static void on_tick(uv_timer_t *timer)
{
	struct unknown_names *n = timer->data;
	struct name_search *s = n->search;

	if (s && !atomic_load(&s->is_done))
		return;
	if (s) {
		n->search = NULL;
		take(n, s);
		free(s);
		n->pause_s = n->pause_s * 2 < PAUSE_MAX_S ? n->pause_s * 2 : PAUSE_MAX_S;
		n->left_s = n->pause_s;
		if (count(n) == 0)
			uv_timer_stop(timer);
	} else if (--n->left_s == 0) {
		n->left_s = 1;
		start_search(n);
	}
}

void names_changed(struct unknown_names *n)
{
	const struct cache_quotas *q = &n->server->serving.cache.quotas;
	_cleanup_(freep) char *list = NULL;
	size_t size;
	FILE *f;

	if (count(n) == 0) {
		uv_timer_stop(&n->timer);
		return;
	}
	f = open_memstream(&list, &size);
	if (f) {
		for (uint32_t i = 0; i < q->n; i++)
			if (q->rows[i].is_unknown)
				fprintf(f, "%s (cache-quota), ", q->rows[i].name);
		if (n->admin->is_unknown)
			fprintf(f, "%s (admin-user), ", n->admin->name);
		fclose(f);
	}
	log_warning("this machine does not know %sso the settings for these names are not in force; dieseld "
		    "looks the names up again by itself. Run `dieseld --check-config` to print the line",
		    list ? list : "all names, ");
	n->pause_s = n->left_s = PAUSE_S;
	uv_timer_start(&n->timer, on_tick, TICK_MS, TICK_MS);
}

void names_start(struct unknown_names *n, uv_loop_t *loop, struct server *server, struct admin_choice *admin)
{
	*n = (struct unknown_names){.server = server, .admin = admin};
	uv_timer_init(loop, &n->timer);
	n->timer.data = n;
	uv_unref((uv_handle_t *)&n->timer);
	names_changed(n);
}

void names_stop(struct unknown_names *n)
{
	uv_close((uv_handle_t *)&n->timer, NULL);
}
