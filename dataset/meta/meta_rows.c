/* SPDX-License-Identifier: Apache-2.0 */
#include "meta_rows.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/thread.h"

enum statement { ADD_CHUNK, ADD_PATH, REPLACE_PATH, DELETE_PATH, N_STATEMENTS };

#define PATH_VALUES "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10"

static const char *const statement_sql[N_STATEMENTS] = {
    [ADD_CHUNK] = "INSERT INTO chunk (id, file_bytes, created_ns, head_xxh3, n_records, payload_offset, "
		  "flags) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [ADD_PATH] = "INSERT OR IGNORE INTO path VALUES (" PATH_VALUES ")",
    [REPLACE_PATH] = "INSERT OR REPLACE INTO path VALUES (" PATH_VALUES ")",
    [DELETE_PATH] = "DELETE FROM path WHERE path = ?1",
};

struct head {
	struct head *next;
	struct chunk_view view;
	size_t bytes;
	_Alignas(struct chunk_header) unsigned char data[];
};

struct meta_rows {
	struct sql *db;
	struct sql_statement *statements[N_STATEMENTS];
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* signals a change of a field below */
	struct head *first, **last;
	size_t bytes; /* of the waiting heads */
	bool working, stop;
	int64_t n_paths;      /* added */
	struct error failure; /* the first failure */
};

static int prepare(struct meta_rows *m, enum statement which, struct sql_statement **ret, struct error *err)
{
	int r =
	    m->statements[which] ? 0 : sql_prepare(m->db, statement_sql[which], &m->statements[which], err);

	if (r == 0)
		*ret = m->statements[which];
	return r;
}

static int add_chunk(struct meta_rows *m, const struct chunk_header *h, struct error *err)
{
	struct sql_statement *st = NULL;
	int r = prepare(m, ADD_CHUNK, &st, err);

	if (r < 0)
		return r;
	sql_bind_bytes(st, 1, h->id.bytes, sizeof(h->id.bytes));
	sql_bind_integer(st, 2, (int64_t)h->file_bytes);
	sql_bind_integer(st, 3, (int64_t)h->created_ns);
	sql_bind_integer(st, 4, (int64_t)h->head_xxh3);
	sql_bind_integer(st, 5, h->n_records);
	sql_bind_integer(st, 6, h->payload_offset);
	sql_bind_integer(st, 7, h->flags);
	return sql_run(st, err);
}

/* Runs a statement for one record. *ret_n: number of rows that it changed. */
static int run(struct meta_rows *m, enum statement which, const struct chunk_view *view, uint32_t i,
	       int64_t *ret_n, struct error *err)
{
	const struct chunk_record *record = &view->records[i];
	const struct chunk_id *id = &view->header->id;
	struct sql_statement *st = NULL;
	int r = prepare(m, which, &st, err);

	if (r < 0)
		return r;
	sql_bind_name(st, 1, view->names + record->name_offset, record->name_length);
	if (which != DELETE_PATH) {
		sql_bind_bytes(st, 2, id->bytes, sizeof(id->bytes));
		sql_bind_integer(st, 3, i);
		sql_bind_integer(st, 4, (int64_t)record->offset);
		sql_bind_integer(st, 5, record->bytes);
		sql_bind_integer(st, 6, record->stored_bytes);
		sql_bind_integer(st, 7, record->encoding);
		sql_bind_integer(st, 8, (int64_t)record->xxh3);
		sql_bind_integer(st, 9, (int64_t)record->mtime_ns);
		sql_bind_integer(st, 10, record->mode);
	}
	r = sql_run(st, err);
	if (r == 0)
		*ret_n = sql_n_changed(m->db);
	return r;
}

/* Stores or deletes a path. Adds the change of the number of paths to *n_paths. */
static int put_path(struct meta_rows *m, const struct chunk_view *view, uint32_t i, int64_t *n_paths,
		    struct error *err)
{
	bool tombstone = view->header->flags & CHUNK_FLAG_TOMBSTONE;
	int64_t n = 0;
	int r = run(m, tombstone ? DELETE_PATH : ADD_PATH, view, i, &n, err);

	if (r < 0)
		return r;
	*n_paths += tombstone ? -n : n;
	return tombstone || n ? 0 : run(m, REPLACE_PATH, view, i, &n, err);
}

static int put_head(struct meta_rows *m, const struct chunk_view *view, int64_t *n_paths, struct error *err)
{
	int r = add_chunk(m, view->header, err);

	for (uint32_t i = 0; i < view->header->n_records && r == 0; i++)
		r = put_path(m, view, i, n_paths, err);
	return r;
}

/* Stores the next chunk's rows. Called with the lock held, and releases it while it works. */
static void put_next(struct meta_rows *m)
{
	struct head *head = m->first;
	struct error err = ERROR_INIT;
	int64_t n_paths = 0;

	m->first = head->next;
	if (!m->first)
		m->last = &m->first;
	m->working = true;
	pthread_mutex_unlock(&m->lock);
	int r = put_head(m, &head->view, &n_paths, &err);

	pthread_mutex_lock(&m->lock);
	m->working = false;
	m->bytes -= head->bytes;
	m->n_paths += n_paths;
	if (r < 0)
		m->failure = err;
	free(head);
	pthread_cond_broadcast(&m->changed);
}

static void *work(void *argument)
{
	struct meta_rows *m = argument;

	pthread_mutex_lock(&m->lock);
	while (!m->stop) {
		if (m->first && !m->failure.code)
			put_next(m);
		else
			pthread_cond_wait(&m->changed, &m->lock);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

static int start(struct meta_rows *m)
{
	int r = thread_start(&m->thread, work, m);

	m->started = r == 0;
	return r;
}

int meta_rows_new(struct sql *db, struct meta_rows **ret)
{
	struct meta_rows *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->db = db;
	m->last = &m->first;
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->changed, NULL);
	*ret = m;
	return 0;
}

void meta_rows_free(struct meta_rows *m)
{
	if (!m)
		return;
	meta_rows_drop(m);
	if (m->started) {
		pthread_mutex_lock(&m->lock);
		m->stop = true;
		pthread_cond_broadcast(&m->changed);
		pthread_mutex_unlock(&m->lock);
		pthread_join(m->thread, NULL);
	}
	for (int i = 0; i < N_STATEMENTS; i++)
		sql_statement_free(m->statements[i]);
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static struct head *copy(const struct chunk_view *view)
{
	size_t bytes = view->header->payload_offset;
	struct head *head = malloc(sizeof(*head) + bytes);

	if (!head)
		return NULL;
	head->next = NULL;
	head->bytes = bytes;
	memcpy(head->data, view->header, bytes);
	head->view = (struct chunk_view){
	    .header = (const struct chunk_header *)head->data,
	    .records = (const struct chunk_record *)(head->data + sizeof(struct chunk_header)),
	    .names = (const char *)head->data + view->header->names_offset,
	};
	return head;
}

static int failure_of(const struct meta_rows *m, struct error *err)
{
	if (m->failure.code && err)
		*err = m->failure;
	return m->failure.code;
}

int meta_rows_put(struct meta_rows *m, const struct chunk_view *view, struct error *err)
{
	struct head *head = copy(view);
	int r = head ? 0 : -ENOMEM;

	if (r == 0 && !m->started)
		r = start(m);
	if (r < 0) {
		free(head);
		return error_errno(err, r, "cannot use %s", sql_path(m->db));
	}
	pthread_mutex_lock(&m->lock);
	while (m->bytes && m->bytes + head->bytes > META_ROWS_BYTES && !m->failure.code)
		pthread_cond_wait(&m->changed, &m->lock);
	r = failure_of(m, err);
	if (r == 0) {
		*m->last = head;
		m->last = &head->next;
		m->bytes += head->bytes;
		pthread_cond_broadcast(&m->changed);
	} else {
		free(head);
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}

int meta_rows_settle(struct meta_rows *m, uint64_t *n_paths, struct error *err)
{
	pthread_mutex_lock(&m->lock);
	while ((m->first && !m->failure.code) || m->working)
		pthread_cond_wait(&m->changed, &m->lock);
	int r = failure_of(m, err);

	*n_paths += (uint64_t)m->n_paths;
	m->n_paths = 0;
	pthread_mutex_unlock(&m->lock);
	return r;
}

void meta_rows_drop(struct meta_rows *m)
{
	pthread_mutex_lock(&m->lock);
	while (m->first) {
		struct head *head = m->first;

		m->first = head->next;
		m->bytes -= head->bytes;
		free(head);
	}
	m->last = &m->first;
	while (m->working)
		pthread_cond_wait(&m->changed, &m->lock);
	m->failure = (struct error)ERROR_INIT;
	m->n_paths = 0;
	pthread_mutex_unlock(&m->lock);
}
