/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdio.h>
#include <string.h>

#define KEY_ESCAPE 27

/* Intervals between samples for the keys + and -, in steps of about a factor of two. */
static const double intervals_s[] = {0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60};
#define N_INTERVALS (sizeof(intervals_s) / sizeof(intervals_s[0]))

static void cursor_set(struct model *model, const struct table *table, size_t row)
{
	model->cursor[model->view] = row;
	model->is_chosen = true;
	snprintf(model->selected, sizeof(model->selected), "%s",
		 model_item_job(model->view, table->rows[row]));
}

/* Moves the cursor by a number of rows, up to either end. */
static enum model_action move(struct model *model, long rows)
{
	struct table table;
	long to;

	if (model->overlay != OVERLAY_NONE) {
		to = (long)model->overlay_top + rows;
		model->overlay_top = to < 0 ? 0 : (size_t)to;
		return MODEL_REDRAW;
	}
	if (model_table(model, &table))
		return MODEL_NOTHING;
	if (table.n) {
		to = (long)table.cursor + rows;
		to = to < 0 ? 0 : to >= (long)table.n ? (long)table.n - 1 : to;
		cursor_set(model, &table, (size_t)to);
	}
	model_table_free(&table);
	return MODEL_REDRAW;
}

static bool row_matches(const struct table *table, size_t row, const char *wanted)
{
	for (size_t i = 0; i < table->columns->n; i++) {
		char text[512];

		column_text(&table->columns->items[i], table->rows[row], text, sizeof(text));
		if (table->columns->items[i].kind == COLUMN_TEXT && strcasestr(text, wanted))
			return true;
	}
	return false;
}

/* Moves the cursor to the next row with the text, and continues from the top at the end. */
static void search(struct model *model, bool from_next)
{
	struct table table;
	bool found = false;

	if (!model->search[0] || model_table(model, &table))
		return;
	for (size_t i = from_next; i < table.n + from_next && !found; i++) {
		size_t row = (table.cursor + i) % table.n;

		found = row_matches(&table, row, model->search);
		if (found)
			cursor_set(model, &table, row);
	}
	if (!found)
		snprintf(model->message, sizeof(model->message), "\"%s\" is not found", model->search);
	model_table_free(&table);
}

static void input_add(struct model *model, unsigned int key)
{
	size_t n = strlen(model->input);
	char bytes[4];
	size_t n_bytes = glyph_encode((wchar_t)key, bytes);

	if (key < 0x20 || key == 0x7f || key > 0x10ffff || n + n_bytes >= sizeof(model->input))
		return;
	memcpy(model->input + n, bytes, n_bytes);
	model->input[n + n_bytes] = '\0';
}

static void input_remove(struct model *model)
{
	size_t n = strlen(model->input);

	while (n && ((unsigned char)model->input[n - 1] & 0xc0) == 0x80)
		n--;
	model->input[n ? n - 1 : 0] = '\0';
}

/* Handles a key in the prompt. Text takes effect while it is typed. Escape removes a filter. */
static enum model_action prompt_key(struct model *model, unsigned int key)
{
	enum prompt prompt = model->prompt;
	bool ends = key == '\n' || key == '\r' || key == KEY_ESCAPE;

	if (key == MODEL_KEY_BACKSPACE || key == 0x7f || key == 8)
		input_remove(model);
	else if (key == KEY_ESCAPE)
		model->input[0] = '\0';
	else if (!ends)
		input_add(model, key);
	if (ends)
		model->prompt = PROMPT_NONE;
	if (prompt == PROMPT_FILTER)
		memcpy(model->filter, model->input, sizeof(model->filter));
	if (prompt == PROMPT_SEARCH && key != KEY_ESCAPE) {
		memcpy(model->search, model->input, sizeof(model->search));
		search(model, false);
	}
	return prompt == PROMPT_TIME && ends && model->input[0] ? MODEL_JUMP : MODEL_REDRAW;
}

static enum model_action open_prompt(struct model *model, enum prompt prompt, const char *text)
{
	model->prompt = prompt;
	snprintf(model->input, sizeof(model->input), "%s", text);
	return MODEL_REDRAW;
}

static enum model_action set_view(struct model *model, int by)
{
	model->view = (enum view)((model->view + VIEW_COUNT + by) % VIEW_COUNT);
	model->overlay = OVERLAY_NONE;
	return model->is_replay ? MODEL_REDRAW : MODEL_REFRESH;
}

static enum model_action set_overlay(struct model *model, enum overlay overlay)
{
	model->overlay = model->overlay == overlay ? OVERLAY_NONE : overlay;
	model->overlay_top = 0;
	return overlay == OVERLAY_DETAIL && !model->is_replay ? MODEL_REFRESH : MODEL_REDRAW;
}

static enum model_action change_sort(struct model *model, long by)
{
	struct table table;

	if (model_table(model, &table) || !table.columns)
		return MODEL_NOTHING;
	model->sort[model->view] =
	    (size_t)((long)model->sort[model->view] + (long)table.columns->n + by) % table.columns->n;
	snprintf(model->message, sizeof(model->message), "sorted by %s: %s",
		 table.columns->items[model->sort[model->view]].key,
		 table.columns->items[model->sort[model->view]].meaning);
	model_table_free(&table);
	return MODEL_REDRAW;
}

static enum model_action change_interval(struct model *model, bool longer)
{
	double best = model->interval_s;

	for (size_t i = 0; i < N_INTERVALS; i++) {
		double s = intervals_s[longer ? i : N_INTERVALS - 1 - i];

		if (longer ? s > model->interval_s * 1.001 : s < model->interval_s * 0.999) {
			best = s;
			break;
		}
	}
	model->interval_s = best;
	return MODEL_REDRAW;
}

static enum model_action toggle(bool *flag)
{
	*flag = !*flag;
	return MODEL_REDRAW;
}

static enum model_action toggle_tree(struct model *model)
{
	if (model->view == VIEW_WORKERS)
		return toggle(&model->tree);
	model->tree = true;
	return set_view(model, (int)VIEW_WORKERS - (int)model->view);
}

static enum model_action replay_key(const struct model *model, unsigned int key)
{
	if (!model->is_replay)
		return MODEL_NOTHING;
	switch (key) {
	case 't':
	case MODEL_KEY_RIGHT: return MODEL_FORWARD;
	case 'T':
	case MODEL_KEY_LEFT: return MODEL_BACKWARD;
	case 'r': return MODEL_FIRST;
	case 'Z': return MODEL_LAST;
	default: return MODEL_NOTHING;
	}
}

/* Handles a key in the setup, which changes colours and characters as far as the terminal supports them. */
static enum model_action setup_key(struct model *model, unsigned int key)
{
	switch (key) {
	case 'c': return toggle(&model->charset.colour);
	case 'u': return toggle(&model->charset.unicode);
	case 'i': return change_interval(model, true);
	case 'd': return change_interval(model, false);
	default: return MODEL_NOTHING;
	}
}

static enum model_action close_or_quit(struct model *model)
{
	if (model->overlay == OVERLAY_NONE)
		return MODEL_QUIT;
	model->overlay = OVERLAY_NONE;
	return MODEL_REDRAW;
}

static enum model_action move_key(struct model *model, unsigned int key)
{
	long page = model->page > 1 ? (long)model->page - 1 : 1;

	switch (key) {
	case 'k':
	case MODEL_KEY_UP: return move(model, -1);
	case 'j':
	case MODEL_KEY_DOWN: return move(model, 1);
	case MODEL_KEY_PAGE_UP: return move(model, -page);
	case MODEL_KEY_PAGE_DOWN: return move(model, page);
	case 'g':
	case MODEL_KEY_HOME: return move(model, -1000000);
	case 'G':
	case MODEL_KEY_END: return move(model, model->overlay == OVERLAY_NONE ? 1000000 : 0);
	default: return MODEL_NOTHING;
	}
}

static enum model_action plain_key(struct model *model, unsigned int key)
{
	switch (key) {
	case MODEL_KEY_F1:
	case 'h':
	case '?': return set_overlay(model, OVERLAY_HELP);
	case MODEL_KEY_F1 + 1: return set_overlay(model, OVERLAY_SETUP);
	case MODEL_KEY_F1 + 2:
	case '/': return open_prompt(model, PROMPT_SEARCH, "");
	case 'n': search(model, true); return MODEL_REDRAW;
	case MODEL_KEY_F1 + 3:
	case '\\': return open_prompt(model, PROMPT_FILTER, model->filter);
	case MODEL_KEY_F1 + 4:
	case 't': return toggle_tree(model);
	case MODEL_KEY_F1 + 5:
	case '>': return change_sort(model, 1);
	case '<': return change_sort(model, -1);
	case 'I': return toggle(&model->invert[model->view]);
	case 'H': toggle(&model->threads); return model->is_replay ? MODEL_REDRAW : MODEL_REFRESH;
	case ' ':
	case 'z':
	case 'Z': return toggle(&model->paused);
	case '\n':
	case '\r': return model_selected(model) ? set_overlay(model, OVERLAY_DETAIL) : MODEL_NOTHING;
	case '\t': return set_view(model, 1);
	case MODEL_KEY_BACK_TAB: return set_view(model, -1);
	case '+': return change_interval(model, true);
	case '-': return change_interval(model, false);
	case 'b': return model->is_replay ? open_prompt(model, PROMPT_TIME, "") : MODEL_NOTHING;
	case KEY_ESCAPE: return close_or_quit(model);
	case 'q':
	case MODEL_KEY_F10: return MODEL_QUIT;
	default:
		return key >= '1' && key < '1' + VIEW_COUNT
			   ? set_view(model, (int)(key - '1') - (int)model->view)
			   : MODEL_NOTHING;
	}
}

enum model_action model_key(struct model *model, unsigned int key)
{
	enum model_action action;

	model->message[0] = '\0';
	if (model->prompt != PROMPT_NONE)
		return prompt_key(model, key);
	action = replay_key(model, key);
	if (action == MODEL_NOTHING && model->overlay == OVERLAY_SETUP)
		action = setup_key(model, key);
	if (action == MODEL_NOTHING)
		action = move_key(model, key);
	return action == MODEL_NOTHING ? plain_key(model, key) : action;
}
