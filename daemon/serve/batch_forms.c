/* SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"
#include "daemon/cache/forms.h"

void batch_forms_find(struct batch *b, const struct forms *forms)
{
	b->n_all = b->n_items;
	for (uint32_t i = 0; forms && b->status == 0 && i < b->n_items; i++) {
		struct batch_item *item = &b->items[i];

		item->form = forms_find(forms, item->sample, &item->form_offset);
		if (item->form)
			forms_pin(item->form);
	}
}

void batch_forms_grant(struct batch *b, struct cache *c, struct forms *forms)
{
	bool any = false;

	for (uint32_t i = b->n_decoded; forms && b->status == 0 && i < b->n_items; i++)
		any = any || !b->items[i].form;
	b->grant = any ? forms_grant(c, forms) : NULL;
}

void batch_forms_enter(struct batch *b, struct cache *c)
{
	/* In the order in which they were written: items that are left out have made none, and go behind. */
	for (uint32_t i = 0; b->grant && i < b->n_all; i++) {
		struct batch_item *item = &b->items[i];

		if (item->made_bytes > 0)
			forms_add(c, b->grant, item->sample, item->made_bytes);
		item->made_bytes = 0;
	}
	if (b->grant)
		forms_take_back(c, b->grant, b->grant_full);
	b->grant = NULL;
}

void batch_forms_unpin(struct batch *b, struct cache *c)
{
	for (uint32_t i = 0; i < b->n_all; i++) {
		if (b->items[i].form)
			forms_unpin(c, b->items[i].form);
		b->items[i].form = NULL;
	}
}
