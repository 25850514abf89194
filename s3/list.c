/* SPDX-License-Identifier: Apache-2.0 */
/* Lists objects, page by page. */
#include "bucket_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

#define PAGE 1000
/* Maximum number of empty pages in a row, so that no server can make a list endless. */
#define MAX_EMPTY_PAGES 100

/* Decodes a URL-encoded text in place. Returns false if the text is invalid. */
static bool url_decode(char *text)
{
	char *out = text;

	for (; *text; text++) {
		unsigned value;

		if (*text == '+') {
			*out++ = ' ';
		} else if (*text != '%') {
			*out++ = *text;
		} else {
			if (!strchr("0123456789abcdefABCDEF", text[1] ? text[1] : 'x') ||
			    !strchr("0123456789abcdefABCDEF", text[2] ? text[2] : 'x') ||
			    sscanf(text + 1, "%2x", &value) != 1)
				return false;
			*out++ = (char)value;
			text += 2;
		}
	}
	*out = '\0';
	return true;
}

struct listing {
	struct bucket *bucket;
	const char *prefix; /* prefix of the keys, including the bucket's */
	char *last;         /* the last key received, or the key to start behind; NULL: none */
	bucket_list_callback *callback;
	void *context;
};

static int bad_list(const struct listing *w, const char *what, struct error *err)
{
	return error_set(err, -EPROTO, "%s: the server's list %s", w->bucket->url, what);
}

static int take_page(struct listing *w, struct xml_list *page, struct error *err)
{
	size_t skip = strlen(w->bucket->prefix);

	for (size_t i = 0; i < page->n; i++) {
		char *key = page->objects[i].key;

		if ((page->url_encoded && !url_decode(key)) ||
		    strncmp(key, w->prefix, strlen(w->prefix)) != 0)
			return bad_list(w, "contains a name that was not requested", err);
		if (w->last && strcmp(key, w->last) <= 0)
			return bad_list(w, "is not sorted", err);
		free(w->last);
		w->last = steal_pointer(page->objects[i].key);
		int r = w->callback(w->last + skip, page->objects[i].bytes, w->context);

		if (r != 0)
			return r;
	}
	return 0;
}

static int get_page(struct listing *w, const char *token, const char *after, unsigned max,
		    struct xml_list *ret, struct error *err)
{
	char number[16];
	struct s3_request r = {.method = METHOD_GET};
	struct answer a;

	snprintf(number, sizeof(number), "%u", max && max < PAGE ? max : PAGE);
	if (token)
		r.query[r.n_query++] = (struct query){"continuation-token", token};
	r.query[r.n_query++] = (struct query){"encoding-type", "url"};
	r.query[r.n_query++] = (struct query){"list-type", "2"};
	r.query[r.n_query++] = (struct query){"max-keys", number};
	r.query[r.n_query++] = (struct query){"prefix", w->prefix};
	if (after && !token)
		r.query[r.n_query++] = (struct query){"start-after", after};
	int result = request_run(w->bucket, &r, &a, err);

	if (result > 0)
		return bad_list(w, "was not sent", err);
	if (result < 0)
		return result;
	struct xml_list page;

	result = xml_parse_list(a.text ? a.text : "", a.body_bytes, &page);
	answer_free(&a);
	if (result == -EBADMSG)
		return bad_list(w, "cannot be parsed; is AWS_ENDPOINT_URL_S3 an S3 server?", err);
	if (result < 0)
		return error_errno(err, result, "%s", w->bucket->url);
	*ret = page;
	return 0;
}

static int list_pages(struct listing *w, const char *after, unsigned max, struct error *err)
{
	_cleanup_(freep) char *token = NULL;
	unsigned n_empty = 0;
	int r = 0;

	for (bool more = true; more && r == 0;) {
		struct xml_list page = {0};

		r = get_page(w, token, after, max, &page, err);
		if (r < 0)
			return r;
		n_empty = page.n ? 0 : n_empty + 1;
		more = page.truncated;
		r = take_page(w, &page, err);
		if (r == 0 && more && (!page.next || n_empty > MAX_EMPTY_PAGES))
			r = bad_list(w,
				     "is incomplete: the server sent no position to continue from, or only "
				     "empty pages",
				     err);
		free(token);
		token = steal_pointer(page.next);
		xml_list_free(&page);
	}
	return r;
}

int bucket_list(struct bucket *b, const char *prefix, const char *after, unsigned max,
		bucket_list_callback *callback, void *context, struct error *err)
{
	_cleanup_(freep) char *whole = NULL, *first = NULL;
	struct listing w = {.bucket = b, .callback = callback, .context = context};

	if (asprintf(&whole, "%s%s", b->prefix, prefix) < 0) {
		whole = NULL;
		return error_errno(err, -ENOMEM, "%s", b->url);
	}
	if (after && asprintf(&first, "%s%s", b->prefix, after) < 0) {
		first = NULL;
		return error_errno(err, -ENOMEM, "%s", b->url);
	}
	w.prefix = whole;
	if (first && !(w.last = strdup(first)))
		return error_errno(err, -ENOMEM, "%s", b->url);
	int r = list_pages(&w, first, max, err);

	free(w.last);
	return r;
}
