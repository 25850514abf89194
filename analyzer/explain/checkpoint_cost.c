/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint_cost.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "analyzer/base/times.h"
#include "analyzer/replay/service.h"
#include "analyzer/shares/checkpoint.h"
#include "analyzer/shares/partition.h"
#include "analyzer/waits/window.h"
#include "lib/sorted.h"

#define STEPS_MIN 5  /* minimum steps of a kind; fewer do not show how long such a step is */
#define SURE      4  /* standard errors that the excess must be above 0 */
#define BEFORE    16 /* maximum steps until the writer starts: it takes over the copy, pickles, opens a file */
#define SAVES_MIN 4  /* with as many saves, the first one is left out: it also allocates and imports */
#define CLEAR     0.25 /* the advice is clear if its error changes the interval by no more than this */

_Static_assert(CHECKPOINT_TAIL_SHARES == SHARE_COUNT, "a share each");

/* Sums over steps. Checkpoint stalls are counted elsewhere, and compiling has nothing to do with checkpoints:
 * both are left out. */
struct sums {
	size_t n;
	double ns, compute_ns, squares, gil_ns;
	double share_ns[SHARE_COUNT];
};

/* A save, its steps, and the steps around it that belong to no save. */
struct save {
	bool known;                           /* its first step is recorded, and does nothing else either */
	size_t begin;                         /* step in which its writing or copying begins */
	size_t first, behind;                 /* its steps: [first, behind) */
	size_t copy;                          /* step in which its state was copied, if copying is certain */
	double stall_ns;                      /* all stalls in its steps */
	double wait_ns;                       /* part of stall_ns: until the save before it was complete */
	double await_ns;                      /* part of stall_ns: other waits for those who save */
	double copy_ns;                       /* excess of the step in which the state was copied */
	double excess_ns;                     /* excess of all its steps; includes copy_ns */
	double gil_ns, share_ns[SHARE_COUNT]; /* excess of its steps without the copy's */
	double stage_slowed_ns;               /* part of that, before the first write */
};

struct coster {
	const struct study *study;
	struct checkpoint_report *report;
	struct save *saves; /* as report->items */
	uint8_t *flags;     /* per step */
	size_t ahead;       /* steps from the first step that takes longer to the start of the writing */
	bool copies;        /* copying is certain */
	struct sums others, during, copied;
};

#define STEP_SAVES 1 /* belongs to a save */
#define STEP_APART 2 /* also does things that neither a save nor an ordinary step does */

static double step_ns(const struct analysis_step *step)
{
	return (double)(step->end_ns - step->begin_ns - step->share_ns[SHARE_CHECKPOINT_STALL] -
			step->share_ns[SHARE_COMPILING]);
}

/* Returns the computing time of the step: waits for data have other causes, and stalls are counted
 * already. */
static double compute_ns(const struct analysis_step *step)
{
	return (double)(step->share_ns[SHARE_DEVICE] + step->share_ns[SHARE_CPU_STARVED] +
			step->share_ns[SHARE_OTHER]);
}

static void step_add(const struct coster *coster, size_t k, struct sums *sums)
{
	const struct analysis_step *step = &coster->study->window->steps[k];
	double ns = step_ns(step);

	sums->n++;
	sums->ns += ns;
	sums->compute_ns += compute_ns(step);
	sums->squares += ns * ns;
	sums->gil_ns += (double)partition_gil_ns(coster->study->partition, step->begin_ns, step->end_ns);
	for (size_t i = 0; i < SHARE_COUNT; i++)
		if (i != SHARE_CHECKPOINT_STALL && i != SHARE_COMPILING)
			sums->share_ns[i] += (double)step->share_ns[i];
}

static double variance(const struct sums *sums)
{
	double n = (double)sums->n, mean_ns = sums->ns / n;

	return fmax(0, sums->squares / n - mean_ns * mean_ns) / (n - 1);
}

/* Flags the steps that are like no other: excluded ones, the first of an epoch, which waits for workers to
 * start, and the first of all. */
static void flags_set(struct coster *coster)
{
	const struct window *window = coster->study->window, *run = coster->study->run;
	const struct service *service = coster->study->service;
	size_t offset = run->n_steps ? (size_t)(run->steps - window->steps) : 0;

	coster->flags[0] = STEP_APART;
	for (size_t k = 0; k < window->n_steps; k++)
		if (window->steps[k].excluded)
			coster->flags[k] = STEP_APART;
	for (size_t i = 0; run->n_steps && i < service->job.n_epochs; i++)
		if (service->epochs[i].first_step + offset < window->n_steps)
			coster->flags[service->epochs[i].first_step + offset] = STEP_APART;
}

/* Returns the step that contains the time; n_steps: none. */
static size_t step_at(const struct window *window, uint64_t at_ns)
{
	size_t k = sorted_count(window->n_steps, i, window->steps[i].end_ns <= at_ns);

	return k < window->n_steps && window->steps[k].begin_ns <= at_ns ? k : window->n_steps;
}

static void saves_place(struct coster *coster)
{
	const struct window *window = coster->study->window;

	for (size_t i = 0; i < coster->report->n_items; i++) {
		const struct checkpoint_item *item = &coster->report->items[i];
		struct save *save = &coster->saves[i];

		save->begin = step_at(window, item->begin_ns);
		save->known = save->begin < window->n_steps && !(coster->flags[save->begin] & STEP_APART);
		save->first = sorted_count(window->n_steps, k, window->steps[k].end_ns <= item->begin_ns);
		save->behind = sorted_count(window->n_steps, k, window->steps[k].begin_ns < item->end_ns);
		if (save->behind < save->first)
			save->behind = save->first;
	}
}

/* Sums the excess of the steps that come `before` steps ahead of the start of a save. *ret_n: their
 * number. */
static double excess_ahead(const struct coster *coster, size_t before, double median_ns, size_t *ret_n)
{
	const struct analysis_step *steps = coster->study->window->steps;
	double sum_ns = 0;

	*ret_n = 0;
	for (size_t i = 0; i < coster->report->n_items; i++) {
		const struct save *save = &coster->saves[i];
		size_t k = save->begin - before;

		if ((before && !coster->report->items[i].background) || !save->known ||
		    save->begin <= before || (coster->flags[k] & STEP_APART))
			continue;
		sum_ns += compute_ns(&steps[k]) - median_ns;
		++*ret_n;
	}
	return sum_ns;
}

/* Finds the median of the steps, and their spread: 1.48 times the median distance, which estimates the
 * standard deviation. */
static double median_find(const struct coster *coster, double *values, double *ret_sigma_ns)
{
	const struct window *window = coster->study->window;
	size_t n = 0;
	double median_ns;

	for (size_t k = 0; k < window->n_steps; k++)
		if (!(coster->flags[k] & STEP_APART))
			values[n++] = compute_ns(&window->steps[k]);
	if (!n)
		return NAN;
	qsort(values, n, sizeof(*values), compare_double);
	median_ns = values[n / 2];
	for (size_t k = 0; k < n; k++)
		values[k] = fabs(values[k] - median_ns);
	qsort(values, n, sizeof(*values), compare_double);
	*ret_sigma_ns = 1.48 * values[n / 2];
	return median_ns;
}

/* Returns the number of steps before a save begins that certainly belong to no earlier save. */
static size_t steps_between(const struct coster *coster)
{
	size_t least = BEFORE + 1;

	for (size_t i = 1; i < coster->report->n_items; i++) {
		const struct save *from = &coster->saves[i - 1], *to = &coster->saves[i];

		if (from->known && to->known && to->begin > from->begin && to->begin - from->begin < least)
			least = to->begin - from->begin;
	}
	return least;
}

/* Finds how many steps ahead of the writing the state is copied: where the excess is most, and certain. */
static int copy_place(struct coster *coster)
{
	const struct window *window = coster->study->window;
	double *values = calloc(window->n_steps + 1, sizeof(*values));
	double median_ns, sigma_ns = 0, most_ns = 0;
	size_t n_before = steps_between(coster);

	if (!values)
		return -ENOMEM;
	median_ns = median_find(coster, values, &sigma_ns);
	free(values);
	if (isnan(median_ns) || window->n_steps < coster->report->n_items + STEPS_MIN)
		return 0;
	for (size_t before = 0; before < n_before; before++) {
		size_t n = 0;
		double sum_ns = excess_ahead(coster, before, median_ns, &n);
		bool sure = n && sum_ns > SURE * sigma_ns * sqrt((double)n);

		if (sure && sum_ns / (double)n > most_ns) {
			most_ns = sum_ns / (double)n;
			coster->ahead = before;
			coster->copies = true;
		} else if (sure && before == coster->ahead + 1) {
			coster->ahead = before;
		}
	}
	return 0;
}

/* Returns the step with most computing up to the one in which the writing begins: the writer may open its
 * file in the step of the copy or in a later one. */
static size_t longest(const struct coster *coster, const struct save *save)
{
	const struct window *window = coster->study->window;
	size_t found = save->begin;

	for (size_t k = save->first; k < save->begin && save->begin < window->n_steps; k++)
		if (!(coster->flags[k] & STEP_APART) &&
		    compute_ns(&window->steps[k]) > compute_ns(&window->steps[found]))
			found = k;
	return found;
}

/* Each save begins with its copy, and ends where the next one begins: a step that waits for one and copies
 * for the next belongs to the next. */
static void saves_begin(struct coster *coster)
{
	for (size_t i = 0; i < coster->report->n_items; i++) {
		struct save *save = &coster->saves[i], *last = i ? save - 1 : NULL;

		if (coster->report->items[i].background && save->known && save->begin > coster->ahead)
			save->first = save->begin - coster->ahead;
		if (last && last->first > save->first)
			save->first = last->first;
		if (last && last->behind > save->first)
			last->behind = save->first;
		save->copy = longest(coster, save);
		for (size_t k = save->first; k < save->behind; k++)
			coster->flags[k] |= STEP_SAVES;
	}
}

/* Sums the ordinary steps of [first, behind). */
static void ordinary_add(const struct coster *coster, size_t first, size_t behind, struct sums *sums)
{
	for (size_t k = first; k < behind; k++)
		if (!coster->flags[k])
			step_add(coster, k, sums);
}

/* Sums the ordinary steps around the save; all of them, if there are few. So a machine that gets busier
 * during the recording changes nothing. */
static struct sums ordinary_around(const struct coster *coster, size_t i)
{
	size_t n = coster->report->n_items;
	struct sums sums = {0};

	ordinary_add(coster, i ? coster->saves[i - 1].behind : 0, coster->saves[i].first, &sums);
	ordinary_add(coster, coster->saves[i].behind,
		     i + 1 < n ? coster->saves[i + 1].first : coster->study->window->n_steps, &sums);
	return sums.n < STEPS_MIN ? coster->others : sums;
}

/* Returns the part of the wait that lies in the steps of the save. */
static double wait_within(const struct window *window, const struct timeline_off *off,
			  const struct save *save)
{
	uint64_t begin_ns, end_ns;

	if (save->first >= save->behind)
		return 0;
	begin_ns = max_ns(off->begin_ns, window->steps[save->first].begin_ns);
	end_ns = min_ns(off->waking_ns, window->steps[save->behind - 1].end_ns);
	return end_ns > begin_ns ? (double)(end_ns - begin_ns) : 0;
}

/* Returns true if the wait is for save i - 1, by save i: it ends in the first steps of i. */
static bool is_for_last(const struct coster *coster, const struct timeline_off *off, size_t i)
{
	size_t step = step_at(coster->study->window, off->waking_ns);

	return i && i < coster->report->n_items && off->begin_ns >= coster->report->items[i - 1].begin_ns &&
	       step >= coster->saves[i].first && step <= coster->saves[i].begin;
}

/* Finds how long each save waited for the one before it, and the other waits for those who save. */
static void waits_find(struct coster *coster)
{
	const struct study *study = coster->study;
	const struct timeline_thread *trainer = study->roles->trainer;
	struct checkpoint_item *items = coster->report->items;
	struct save *saves = coster->saves;
	size_t i = 0;

	for (size_t k = 0; k < trainer->n_offs; k++) {
		const struct timeline_off *off = &trainer->offs[k];

		if (!checkpoint_awaited(study->timeline, study->partition->saves, off))
			continue;
		while (i < coster->report->n_items && items[i].begin_ns < off->waking_ns)
			i++;
		if (is_for_last(coster, off, i)) {
			saves[i - 1].wait_ns += wait_within(study->window, off, &saves[i - 1]);
			saves[i].wait_ns += wait_within(study->window, off, &saves[i]);
			items[i - 1].wait_ns += off->waking_ns - off->begin_ns;
		} else if (i) {
			saves[i - 1].await_ns += wait_within(study->window, off, &saves[i - 1]);
		}
	}
}

static void stalls_sum(const struct window *window, struct save *save)
{
	for (size_t k = save->first; k < save->behind; k++)
		save->stall_ns += (double)window->steps[k].share_ns[SHARE_CHECKPOINT_STALL];
	save->wait_ns = fmin(save->wait_ns, save->stall_ns);
	save->await_ns = fmin(save->await_ns, save->stall_ns - save->wait_ns);
}

/* Returns the part of the stalls in which the trainer copies and pickles. */
static double copying_ns(const struct save *save, const struct checkpoint_item *item)
{
	return fmax(0, save->stall_ns - save->wait_ns - save->await_ns - (double)item->own_ns);
}

/* Returns true if the state of the save is copied in step k. */
static bool is_copy(const struct coster *coster, const struct save *save, size_t k)
{
	return coster->copies && save->known && k == save->copy;
}

static bool is_computing(size_t share)
{
	return share == SHARE_DEVICE || share == SHARE_CPU_STARVED || share == SHARE_OTHER;
}

/* Adds the excess of a step of the save over the steps around it, and returns it. */
static double excess_add(const struct coster *coster, size_t k, const struct sums *around, struct save *save)
{
	const struct analysis_step *step = &coster->study->window->steps[k];
	double n = (double)around->n, sum_ns = 0, ns;

	/* A step begins with its data wait, which no save behind it makes longer. */
	for (size_t i = 0; i < SHARE_COUNT; i++) {
		if (!is_computing(i) &&
		    (k == save->begin || i == SHARE_CHECKPOINT_STALL || i == SHARE_COMPILING))
			continue;
		ns = (double)step->share_ns[i] - around->share_ns[i] / n;
		save->share_ns[i] += ns;
		sum_ns += ns;
	}
	save->gil_ns += (double)partition_gil_ns(coster->study->partition, step->begin_ns, step->end_ns) -
			around->gil_ns / n;
	return sum_ns;
}

/* Returns the time that the threads of the trainer's process that save work before the first write. */
static double stage_find(const struct study *study, const struct save *save, uint64_t first_ns)
{
	uint64_t begin_ns = study->window->steps[save->first].begin_ns;
	double ns = 0;

	for (size_t i = 0; first_ns > begin_ns && i < study->timeline->n_threads; i++) {
		struct timeline_account account;

		if (study->roles->of[i] != ROLE_HELPER || !study->partition->saves[i])
			continue;
		account = timeline_account(&study->timeline->threads[i], begin_ns, first_ns);
		ns += (double)(account.cpu_ns + account.block_ns);
	}
	return ns;
}

static void save_measure(struct coster *coster, size_t i)
{
	const struct window *window = coster->study->window;
	const struct sums around = ordinary_around(coster, i);
	struct checkpoint_item *item = &coster->report->items[i];
	struct save *save = &coster->saves[i];
	double excess_ns;

	for (size_t k = save->first; k < save->behind; k++) {
		const struct analysis_step *step = &window->steps[k];

		if (coster->flags[k] & STEP_APART)
			continue;
		if (is_copy(coster, save, k)) {
			step_add(coster, k, &coster->copied);
			save->copy_ns = compute_ns(step) - around.compute_ns / (double)around.n;
			continue;
		}
		excess_ns = excess_add(coster, k, &around, save);
		if (step->begin_ns < item->first_ns)
			save->stage_slowed_ns += excess_ns;
		if (item->background)
			step_add(coster, k, &coster->during);
	}
	for (size_t k = 0; k < SHARE_COUNT; k++)
		save->excess_ns += save->share_ns[k];
	item->tail_ns = save->excess_ns;
	save->excess_ns += save->copy_ns;
	item->copy_ns = save->copy_ns + copying_ns(save, item);
	if (item->background && !save->known)
		item->copy_ns = item->tail_ns = NAN;
}

/* The part of a step of a copy in which the copy is done and the save goes on. */
struct after_copy {
	double share_ns[SHARE_COUNT], gil_ns;
};

static struct after_copy after_copy(const struct coster *coster, size_t i)
{
	const struct analysis_step *step = &coster->study->window->steps[coster->saves[i].copy];
	const struct checkpoint_item *item = &coster->report->items[i];
	const struct partition *partition = coster->study->partition;
	const struct interval_list *own = &partition->checkpoints;
	uint64_t begin_ns = max_ns(step->begin_ns, item->begin_ns), share_ns[SHARE_COUNT] = {0};
	uint64_t end_ns = min_ns(step->end_ns, item->end_ns);
	struct after_copy after = {0};

	for (size_t k = interval_list_from(own, begin_ns); k < own->n && own->items[k].begin_ns < end_ns; k++)
		begin_ns = max_ns(begin_ns, own->items[k].end_ns);
	if (begin_ns >= end_ns)
		return after;
	partition_interval(partition, begin_ns, end_ns, share_ns);
	for (size_t k = 0; k < SHARE_COUNT; k++)
		after.share_ns[k] = (double)share_ns[k];
	after.gil_ns = (double)partition_gil_ns(partition, begin_ns, end_ns);
	return after;
}

/* Takes from the cost of a copy what the rest of its step takes longer because of the save. slowdown: how
 * much longer the save makes computing, as a ratio. */
static void rest_take(struct coster *coster, size_t i, double slowdown)
{
	const struct sums *others = &coster->others;
	struct checkpoint_item *item = &coster->report->items[i];
	struct save *save = &coster->saves[i];
	struct after_copy after = after_copy(coster, i);
	/* The same part of an ordinary step. */
	double part = after.share_ns[SHARE_DEVICE] / (1 + slowdown) / others->share_ns[SHARE_DEVICE];

	for (size_t k = 0; k < SHARE_COUNT; k++) {
		double ns = is_computing(k) ? after.share_ns[k] - part * others->share_ns[k] : 0;

		save->share_ns[k] += ns;
		save->copy_ns -= ns;
		item->copy_ns -= ns;
		item->tail_ns += ns;
	}
	save->gil_ns += after.gil_ns - part * others->gil_ns;
}

/* The other steps of the saves show how much slower computing is. If that is hardly known, nothing is taken.
 */
static void rests_take(struct coster *coster)
{
	struct checkpoint_report *report = coster->report;
	double during_ns = coster->during.share_ns[SHARE_DEVICE], excess_ns = 0;

	for (size_t i = 0; i < report->n_items; i++)
		excess_ns += report->items[i].background ? coster->saves[i].share_ns[SHARE_DEVICE] : 0;
	if (coster->during.n < STEPS_MIN || !(fabs(excess_ns) < during_ns / 2) ||
	    !(coster->others.share_ns[SHARE_DEVICE] > 0))
		return;
	for (size_t i = 0; i < report->n_items; i++)
		if (report->items[i].background && coster->saves[i].copy_ns != 0)
			rest_take(coster, i, excess_ns / (during_ns - excess_ns));
}

/* Twice the standard error of the mean of n values, for few values by about Student's t. */
static double error_of(double sum, double squares, double n)
{
	double mean = sum / n;

	return 2 * (1 + 1.5 / (n - 1)) * sqrt(fmax(0, squares / n - mean * mean) / (n - 1));
}

/* Sums up how much longer the steps during background saves are than those around. */
static int tail_find(struct coster *coster)
{
	struct checkpoint_report *report = coster->report;
	const struct sums *during = &coster->during, *others = &coster->others;
	struct checkpoint_tail *tail;
	double squares = 0, n = 0;

	if (during->n < STEPS_MIN || others->n < STEPS_MIN)
		return 0;
	tail = report->tail = calloc(1, sizeof(*tail));
	if (!tail)
		return -ENOMEM;
	tail->n_during = during->n;
	tail->n_others = others->n;
	for (size_t i = 0; i < report->n_items; i++) {
		const struct save *save = &coster->saves[i];
		double ns = save->excess_ns - save->copy_ns;

		if (!report->items[i].background)
			continue;
		n++;
		tail->ns += ns;
		squares += ns * ns;
		tail->gil_ns += save->gil_ns;
		for (size_t k = 0; k < SHARE_COUNT; k++)
			tail->share_ns[k] += save->share_ns[k];
	}
	tail->error_ns = n > 2 ? n * error_of(tail->ns, squares, n)
			       : 2 * (double)during->n * sqrt(variance(during) + variance(others));
	return 0;
}

/* Adds the save's cost to the sums by cause. */
static void causes_add(const struct save *save, const struct checkpoint_item *item,
		       double cause_ns[CHECKPOINT_CAUSES])
{
	double copying = copying_ns(save, item);

	cause_ns[CHECKPOINT_COPY] += save->copy_ns + copying;
	cause_ns[CHECKPOINT_WRITE] += save->stall_ns - save->wait_ns - save->await_ns - copying;
	cause_ns[CHECKPOINT_AWAIT] += save->await_ns;
	cause_ns[CHECKPOINT_WAIT] += save->wait_ns;
	cause_ns[CHECKPOINT_LOCK] += save->gil_ns;
	cause_ns[CHECKPOINT_CORES] += save->share_ns[SHARE_CPU_STARVED] - save->gil_ns;
	cause_ns[CHECKPOINT_STORAGE] += save->share_ns[SHARE_FETCH_STALL];
	cause_ns[CHECKPOINT_LOADER] += save->share_ns[SHARE_PREP_STALL];
	cause_ns[CHECKPOINT_UNKNOWN] += save->share_ns[SHARE_DEVICE] + save->share_ns[SHARE_OTHER];
}

/* Sets the cost of one save, its error, and its causes. */
static void cost_set(struct coster *coster)
{
	struct checkpoint_report *report = coster->report;
	double sum_ns = 0, squares = 0, steps = 0, excess_ns = 0, n, mean_ns, spread;
	size_t from = report->n_items >= SAVES_MIN, n_staged = 0;

	for (size_t i = from; i < report->n_items && coster->others.n >= STEPS_MIN; i++) {
		const struct save *save = &coster->saves[i];
		double ns = save->stall_ns - save->wait_ns + save->excess_ns;

		/* Nothing is known of a background save's copy in a step that also does other things. */
		if (report->items[i].background && !save->known)
			continue;
		report->n_costs++;
		sum_ns += ns;
		squares += ns * ns;
		excess_ns += save->excess_ns;
		steps += (double)(save->behind - save->first);
		causes_add(save, &report->items[i], report->cause_ns);
		if (report->items[i].background && report->items[i].first_ns) {
			n_staged++;
			report->stage_ns += stage_find(coster->study, save, report->items[i].first_ns);
			report->stage_slowed_ns += save->stage_slowed_ns;
		}
	}
	report->stage_ns = n_staged ? report->stage_ns / (double)n_staged : NAN;
	report->stage_slowed_ns = n_staged ? report->stage_slowed_ns / (double)n_staged : NAN;
	if (!report->n_costs)
		return;
	n = (double)report->n_costs;
	mean_ns = sum_ns / n;
	for (size_t i = 0; i < CHECKPOINT_CAUSES; i++)
		report->cause_ns[i] /= n;
	/* Steps with a save are not shorter because of it: that is chance. */
	report->cost_ns = fmax(mean_ns, (sum_ns - excess_ns) / n);
	if (report->n_costs > 2) {
		report->cost_error_ns = error_of(sum_ns, squares, n);
	} else if (coster->others.n > 1) {
		steps /= n;
		spread = variance(&coster->others) * ((double)coster->others.n * steps + steps * steps);
		report->cost_error_ns = 2 * sqrt(spread / n);
	}
}

/* Returns the mean time from the copy of a save to its end. The trainer is done with its own save when that
 * ends. */
static double full_find(const struct coster *coster)
{
	const struct checkpoint_report *report = coster->report;
	size_t from = report->n_items >= SAVES_MIN, n = report->n_items - from;
	double sum_ns = 0;

	for (size_t i = from; i < report->n_items; i++) {
		const struct checkpoint_item *item = &report->items[i];

		sum_ns += item->background
			      ? (double)(item->end_ns - item->begin_ns) + fmax(0, coster->saves[i].copy_ns)
			      : report->cost_ns;
	}
	return sum_ns / (double)n;
}

/* Returns the part of the time that belongs to no save, and sets the overhead. stall_ns: all stalls, with
 * those of no save. */
static double rest_find(const struct coster *coster, uint64_t stall_ns)
{
	const struct window *window = coster->study->window;
	double sum_ns = 0, excess_ns = 0, rest_ns = (double)(window->observed_ns - stall_ns);

	for (size_t i = 0; i < window->n_steps; i++)
		rest_ns -= (double)window->steps[i].share_ns[SHARE_COMPILING];
	for (size_t i = 0; i < coster->report->n_items; i++) {
		sum_ns += coster->saves[i].stall_ns;
		excess_ns += coster->saves[i].excess_ns;
	}
	excess_ns = fmax(0, excess_ns);
	rest_ns -= excess_ns;
	coster->report->overhead = rest_ns > 0 ? (sum_ns + excess_ns) / rest_ns : NAN;
	return rest_ns;
}

static void advise(struct coster *coster, uint64_t stall_ns)
{
	struct checkpoint_report *report = coster->report;
	size_t n_steps = coster->study->window->n_steps;
	double step_ns = n_steps ? rest_find(coster, stall_ns) / (double)n_steps : 0;
	double full_ns = full_find(coster), max = report->overhead_max;
	double least_ns = fmax(0, report->cost_ns - report->cost_error_ns);
	double most_ns = report->cost_ns + report->cost_error_ns;
	uint32_t steps = checkpoint_interval(fmax(full_ns, report->cost_ns), report->cost_ns, step_ns, max);
	uint32_t low, high;

	report->advised_overhead = NAN;
	if (!steps)
		return;
	if (!report->n_costs) {
		report->unclear = "too few steps outside of saves were seen to compare with";
		return;
	}
	/* The trainer is done with its own saves when they end, whatever they cost. */
	low = checkpoint_interval(report->n_background ? fmax(full_ns, report->cost_ns) : least_ns, least_ns,
				  step_ns, max);
	high = checkpoint_interval(fmax(full_ns, most_ns), most_ns, step_ns, max);
	/* A save of which training pays less is in the background for longer. */
	report->advised_least = low < high ? low : high;
	report->advised_most = low < high ? high : low;
	if (report->advised_most > (1 + CLEAR) * steps + 1 ||
	    report->advised_least + 1 < (1 - CLEAR) * steps) {
		report->unclear = "the cost of a save varies too much for the number of saves seen";
		return;
	}
	if (report->n_costs < 2) {
		report->unclear = "only one save was seen, so it is not known how much their costs vary";
		return;
	}
	report->advised_steps = steps;
	report->advised_overhead = report->cost_ns / ((double)steps * step_ns);
}

/* Moves a part of a share of the step, 0 to 1, to checkpoint_stall, and returns it. */
static uint64_t move(struct coster *coster, struct analysis_step *step, size_t share, double part)
{
	uint64_t moved_ns = part > 0 ? (uint64_t)(fmin(part, 1) * (double)step->share_ns[share]) : 0;

	step->share_ns[share] -= moved_ns;
	step->share_ns[SHARE_CHECKPOINT_STALL] += moved_ns;
	coster->report->moved_ns[share] += moved_ns;
	return moved_ns;
}

/* Moves the save's certain costs beyond its stalls out of the other shares: the same part of each step, so
 * that all saves together move what they cost. */
static void save_charge(struct coster *coster, const struct save *save, double copy_part,
			const double tail_parts[SHARE_COUNT])
{
	for (size_t k = save->first; k < save->behind; k++) {
		struct analysis_step *step = &coster->study->window->steps[k];
		bool copy = is_copy(coster, save, k);

		for (size_t share = 0; share < SHARE_COUNT && !(coster->flags[k] & STEP_APART); share++)
			if (!copy)
				move(coster, step, share, tail_parts[share]);
			else if (is_computing(share))
				coster->report->copied_ns += move(coster, step, share, copy_part);
	}
}

static void charge(struct coster *coster)
{
	struct checkpoint_report *report = coster->report;
	const struct checkpoint_tail *tail = report->tail;
	static const double none[SHARE_COUNT];
	double tail_parts[SHARE_COUNT] = {0}, copied_ns = coster->copied.compute_ns;
	double copy_part = copied_ns > 0 ? report->copy_ns * (double)coster->copied.n / copied_ns : 0;
	uint64_t starved_ns;

	for (size_t i = 0; i < SHARE_COUNT && tail && tail->ns > tail->error_ns; i++)
		if (coster->during.share_ns[i] > 0)
			tail_parts[i] = tail->share_ns[i] / coster->during.share_ns[i];
	for (size_t i = 0; i < report->n_items; i++)
		save_charge(coster, &coster->saves[i], copy_part,
			    report->items[i].background ? tail_parts : none);
	starved_ns = report->moved_ns[SHARE_CPU_STARVED];
	if (tail && tail->gil_ns > 0 && starved_ns)
		report->moved_gil_ns = min_ns((uint64_t)tail->gil_ns, starved_ns);
}

/* Sets the mean cost of a copy. A busy machine makes some steps much longer, so the copies of several saves
 * must agree, too. */
static void copy_set(struct coster *coster)
{
	double sum_ns = 0, squares = 0, n = 0;

	for (size_t i = 0; i < coster->report->n_items; i++) {
		double ns = coster->saves[i].copy_ns;

		n += ns != 0;
		sum_ns += ns;
		squares += ns * ns;
	}
	if (n > 0 && sum_ns > 0 && (n < 3 || sum_ns / n > error_of(sum_ns, squares, n)))
		coster->report->copy_ns = sum_ns / n;
}

static int measure(struct coster *coster, uint64_t stall_ns)
{
	struct checkpoint_report *report = coster->report;
	int r;

	flags_set(coster);
	saves_place(coster);
	r = copy_place(coster);
	if (r < 0)
		return r;
	saves_begin(coster);
	ordinary_add(coster, 0, coster->study->window->n_steps, &coster->others);
	waits_find(coster);
	for (size_t i = 0; i < report->n_items; i++) {
		stalls_sum(coster->study->window, &coster->saves[i]);
		if (coster->others.n < STEPS_MIN)
			continue;
		save_measure(coster, i);
	}
	rests_take(coster);
	copy_set(coster);
	cost_set(coster);
	advise(coster, stall_ns);
	r = tail_find(coster);
	if (r == 0)
		charge(coster);
	return r;
}

int checkpoint_cost_find(const struct study *study, uint64_t stall_ns, struct checkpoint_report *report)
{
	struct coster coster = {.study = study,
				.report = report,
				.saves = calloc(report->n_items + 1, sizeof(*coster.saves)),
				.flags = calloc(study->window->n_steps + 1, 1)};
	int r = coster.saves && coster.flags ? measure(&coster, stall_ns) : -ENOMEM;

	free(coster.saves);
	free(coster.flags);
	return r;
}
