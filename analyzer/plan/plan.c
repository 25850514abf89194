/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan_options.h"
#include "plan_place.h"

#define TOLERANCE 1e-9

const char *plan_strategy_name(enum plan_strategy strategy)
{
	static const char *const names[PLAN_STRATEGIES] = {
	    [PLAN_EQUAL] = "equal", [PLAN_GREEDY] = "greedy", [PLAN_TUNE] = "tune"};

	return names[strategy];
}

const struct plan_nodes *plan_node(const struct plan_cluster *cluster, size_t node)
{
	return &cluster->kinds[plan_kind_of(cluster, node)];
}

size_t plan_n_nodes(const struct plan_cluster *cluster)
{
	size_t n = 0;

	for (size_t kind = 0; kind < cluster->n_kinds; kind++)
		n += cluster->kinds[kind].n;
	return n;
}

size_t plan_first_too_large(const struct plan_cluster *cluster, const struct plan_job *jobs, size_t n_jobs)
{
	for (size_t i = 0; i < n_jobs; i++) {
		bool fits = false;

		for (size_t kind = 0; kind < cluster->n_kinds && !fits; kind++)
			fits = plan_nodes_of(cluster, kind, &jobs[i]) > 0;
		if (!fits)
			return i;
	}
	return n_jobs;
}

/* ---- jobs on nodes ---------------------------------------------------------------------------- */

int place_init(const struct plan_table *table, struct placement *ret_place)
{
	const struct plan_cluster *cluster = table->cluster;
	struct placement place = {.table = table, .n_nodes = plan_n_nodes(cluster)};

	place.nodes = calloc(place.n_nodes + 1, sizeof(*place.nodes));
	place.node_of = calloc(table->n_jobs + 1, sizeof(*place.node_of));
	place.choice = calloc(table->n_jobs + 1, sizeof(*place.choice));
	place.n_empty = calloc(cluster->n_kinds + 1, sizeof(*place.n_empty));
	place.further = calloc(table->n_jobs + 1, sizeof(*place.further));
	if (!place.nodes || !place.node_of || !place.choice || !place.n_empty || !place.further) {
		place_free(&place);
		return -ENOMEM;
	}
	for (size_t node = 0; node < place.n_nodes; node++) {
		const struct plan_nodes *size = plan_node(cluster, node);

		place.nodes[node] = (struct place_node){.accelerators = size->accelerators,
							.cores = size->cores,
							.memory_bytes = size->memory_bytes};
	}
	for (size_t kind = 0; kind < cluster->n_kinds; kind++)
		place.n_empty[kind] = cluster->kinds[kind].n;
	for (size_t job = 0; job < table->n_jobs; job++)
		place.node_of[job] = PLAN_WAITS;
	*ret_place = place;
	return 0;
}

void place_free(struct placement *place)
{
	for (size_t node = 0; place->nodes && node < place->n_nodes; node++)
		free(place->nodes[node].jobs);
	for (size_t job = 0; place->further && job < place->table->n_jobs; job++)
		free(place->further[job]);
	free(place->nodes);
	free(place->n_empty);
	free(place->further);
	free(place->node_of);
	free(place->choice);
	*place = (struct placement){0};
}

/* Adds the job's wish to, or takes it from, what the node's jobs wish for. */
static void wish_count(struct placement *place, size_t job, size_t node, double sign)
{
	const struct plan_option *wish = plan_wish(plan_options_of(place->table, job, node));

	place->nodes[node].cores -= sign * wish->cores;
	place->nodes[node].memory_bytes -= sign * wish->memory_bytes;
}

static struct plan_shape shape_at(const struct placement *place, size_t job, size_t node)
{
	return plan_shape_of(plan_node(place->table->cluster, node), &place->table->jobs[job]);
}

static bool is_empty(const struct placement *place, size_t node)
{
	return place->nodes[node].accelerators == plan_node(place->table->cluster, node)->accelerators;
}

/* Takes accelerators of a node, or gives them back. */
static void accelerators_take(struct placement *place, size_t node, uint32_t n)
{
	place->n_empty[plan_kind_of(place->table->cluster, node)] -= is_empty(place, node);
	place->nodes[node].accelerators -= n;
}

static void accelerators_give(struct placement *place, size_t node, uint32_t n)
{
	place->nodes[node].accelerators += n;
	place->n_empty[plan_kind_of(place->table->cluster, node)] += is_empty(place, node);
}

/* Gives the job the further nodes that it has with this home. -ENOMEM. */
static int further_put(struct placement *place, size_t job, size_t home)
{
	const struct plan_cluster *cluster = place->table->cluster;
	size_t kind = plan_kind_of(cluster, home), n = 0;
	uint32_t n_further = shape_at(place, job, home).n_further;

	if (!n_further)
		return 0;
	place->further[job] = calloc(n_further, sizeof(*place->further[job]));
	if (!place->further[job])
		return -ENOMEM;
	for (size_t node = 0; n < n_further && node < place->n_nodes; node++) {
		if (node == home || plan_kind_of(cluster, node) != kind || !is_empty(place, node))
			continue;
		accelerators_take(place, node, cluster->kinds[kind].accelerators);
		place->further[job][n++] = node;
	}
	return 0;
}

static void further_take(struct placement *place, size_t job, size_t home)
{
	uint32_t n = place->further[job] ? shape_at(place, job, home).n_further : 0;

	for (uint32_t i = 0; i < n; i++)
		accelerators_give(place, place->further[job][i],
				  plan_node(place->table->cluster, home)->accelerators);
	free(place->further[job]);
	place->further[job] = NULL;
}

int place_put(struct placement *place, size_t job, size_t node)
{
	struct place_node *at = &place->nodes[node];

	if (!at->jobs)
		at->jobs =
		    calloc(plan_node(place->table->cluster, node)->accelerators + 1, sizeof(*at->jobs));
	if (!at->jobs || further_put(place, job, node) < 0)
		return -ENOMEM;
	at->jobs[at->n_jobs++] = job;
	accelerators_take(place, node, shape_at(place, job, node).home);
	place->node_of[job] = node;
	wish_count(place, job, node, 1);
	return 0;
}

void place_take(struct placement *place, size_t job)
{
	size_t node = place->node_of[job], i = 0;
	struct place_node *at = &place->nodes[node];

	while (at->jobs[i] != job)
		i++;
	at->jobs[i] = at->jobs[--at->n_jobs];
	further_take(place, job, node);
	accelerators_give(place, node, shape_at(place, job, node).home);
	place->node_of[job] = PLAN_WAITS;
	wish_count(place, job, node, -1);
}

static bool has_accelerators(const struct placement *place, size_t job, size_t node)
{
	const struct plan_cluster *cluster = place->table->cluster;
	size_t kind = plan_kind_of(cluster, node);
	const struct plan_shape shape = shape_at(place, job, node);

	return !place->nodes[node].closed && place->nodes[node].accelerators >= shape.home &&
	       place->n_empty[kind] - is_empty(place, node) >= shape.n_further &&
	       plan_nodes_of(cluster, kind, &place->table->jobs[job]);
}

/* Returns how far wishes would exceed the node, in parts of its size: negative if they fit. *ret_lack: of
 * which of the two more is wanted. */
static double excess_with(const struct placement *place, size_t job, size_t node, enum plan_lack *ret_lack)
{
	const struct plan_nodes *size = plan_node(place->table->cluster, node);
	const struct plan_option *wish = plan_wish(plan_options_of(place->table, job, node));
	double cores = (wish->cores - place->nodes[node].cores) / size->cores;
	double memory = (wish->memory_bytes - place->nodes[node].memory_bytes) / size->memory_bytes;

	*ret_lack = cores >= memory ? PLAN_LACKS_CORES : PLAN_LACKS_MEMORY;
	return fmax(cores, memory);
}

size_t place_find(const struct placement *place, size_t job, enum plan_strategy strategy,
		  enum plan_lack *ret_lack)
{
	enum plan_lack lack = PLAN_LACKS_ACCELERATORS;
	size_t best = PLAN_WAITS;
	double best_cost = INFINITY, least_excess = INFINITY;

	for (size_t node = 0; node < place->n_nodes; node++) {
		enum plan_lack wanted;
		double excess, cost;

		if (!has_accelerators(place, job, node))
			continue;
		excess = excess_with(place, job, node, &wanted);
		if (strategy == PLAN_GREEDY && excess > TOLERANCE) {
			lack = excess < least_excess ? wanted : lack;
			least_excess = fmin(excess, least_excess);
			continue;
		}
		/* Tuned jobs go where wishes exceed the node least, so that each node has hungry and modest
		 * ones. The others fill a node before the next, which leaves whole nodes to larger jobs. */
		cost = strategy == PLAN_TUNE ? excess : place->nodes[node].accelerators;
		if (cost < best_cost - TOLERANCE) {
			best = node;
			best_cost = cost;
		}
	}
	if (ret_lack)
		*ret_lack = best == PLAN_WAITS ? lack : PLAN_LACKS_NOTHING;
	return best;
}

/* ---- the best choice for one node -------------------------------------------------------------------- */

/* One choice of options for the first jobs: cores and memory that it takes, and its gain. */
struct plan_choice {
	double cores, memory_bytes, sum;
	size_t parent; /* in the layer before */
	size_t option;
};

/* All choices worth going on with, after one more job. */
struct layer {
	struct plan_choice *items;
	size_t n;
};

#define LAYER_MAX 4096 /* choices; more are thinned out, and the result may then be below the best */

static int by_need(const void *a, const void *b)
{
	const struct plan_choice *one = a, *other = b;

	if (one->cores != other->cores)
		return one->cores < other->cores ? -1 : 1;
	if (one->memory_bytes != other->memory_bytes)
		return one->memory_bytes < other->memory_bytes ? -1 : 1;
	return (one->sum < other->sum) - (one->sum > other->sum);
}

/* The choices so far that need the least memory for their sum: memory and sum both grow. */
struct stairs {
	struct plan_choice *items;
	size_t n;
};

static size_t stairs_above(const struct stairs *stairs, double memory_bytes)
{
	size_t low = 0, high = stairs->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (stairs->items[middle].memory_bytes <= memory_bytes)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns false if a choice on the stairs needs no more memory and gains no less. */
static bool stairs_add(struct stairs *stairs, const struct plan_choice *choice)
{
	size_t at = stairs_above(stairs, choice->memory_bytes), end = at;

	if (at && stairs->items[at - 1].sum >= choice->sum - TOLERANCE)
		return false;
	while (end < stairs->n && stairs->items[end].sum <= choice->sum)
		end++;
	if (at && stairs->items[at - 1].memory_bytes == choice->memory_bytes)
		at--;
	memmove(&stairs->items[at + 1], &stairs->items[end], (stairs->n - end) * sizeof(*stairs->items));
	stairs->items[at] = *choice;
	stairs->n += at + 1 - end;
	return true;
}

/* Keeps the choices that no other one beats in cores, memory and sum. scratch: as long as the layer. */
static void layer_prune(struct layer *layer, struct plan_choice *scratch)
{
	struct stairs stairs = {.items = scratch};
	size_t n = 0;

	qsort(layer->items, layer->n, sizeof(*layer->items), by_need);
	for (size_t i = 0; i < layer->n; i++)
		if (stairs_add(&stairs, &layer->items[i]))
			layer->items[n++] = layer->items[i];
	for (size_t i = 0; n > LAYER_MAX && i < LAYER_MAX; i++)
		layer->items[i] = layer->items[i * n / LAYER_MAX];
	layer->n = n < LAYER_MAX ? n : LAYER_MAX;
}

/* Computes the least cores and memory that the jobs after the i-th need. */
static void least_after(const struct plan_options *const *options, size_t n, size_t i, double *ret_cores,
			double *ret_memory)
{
	*ret_cores = *ret_memory = 0;
	for (size_t k = i + 1; k < n; k++) {
		double cores = INFINITY, memory = INFINITY;

		for (size_t o = 0; o < options[k]->n; o++) {
			cores = fmin(cores, options[k]->items[o].cores);
			memory = fmin(memory, options[k]->items[o].memory_bytes);
		}
		*ret_cores += cores;
		*ret_memory += memory;
	}
}

/* Adds a job's options to each choice before. -ENOMEM. */
static int layer_next(const struct plan_nodes *nodes, const struct plan_options *const *options, size_t n,
		      size_t i, const struct layer *before, struct layer *ret_layer)
{
	struct layer layer = {.items = calloc(before->n * options[i]->n + 1, sizeof(*layer.items))};
	struct plan_choice *scratch = calloc(before->n * options[i]->n + 1, sizeof(*scratch));
	double cores_after, memory_after;

	if (!layer.items || !scratch) {
		free(layer.items);
		free(scratch);
		return -ENOMEM;
	}
	least_after(options, n, i, &cores_after, &memory_after);
	for (size_t k = 0; k < before->n; k++)
		for (size_t o = 0; o < options[i]->n; o++) {
			const struct plan_option *option = &options[i]->items[o];
			struct plan_choice choice = {before->items[k].cores + option->cores,
						     before->items[k].memory_bytes + option->memory_bytes,
						     before->items[k].sum + option->relative, k, o};

			if (choice.cores + cores_after <= nodes->cores * (1 + TOLERANCE) &&
			    choice.memory_bytes + memory_after <= nodes->memory_bytes * (1 + TOLERANCE))
				layer.items[layer.n++] = choice;
		}
	layer_prune(&layer, scratch);
	free(scratch);
	*ret_layer = layer;
	return 0;
}

static size_t best_of(const struct layer *layer)
{
	size_t best = 0;

	for (size_t k = 1; k < layer->n; k++)
		if (layer->items[k].sum > layer->items[best].sum + TOLERANCE)
			best = k;
	return best;
}

/* Chooses the option of each of a node's n jobs so that the sum of `relative` is largest. ret_choice: n
 * results. -ENOMEM. The proportional shares must fit. */
static int plan_choose(const struct plan_nodes *nodes, const struct plan_options *const *options, size_t n,
		       size_t *ret_choice, double *ret_sum)
{
	struct plan_choice none = {0};
	struct layer *layers = calloc(n + 1, sizeof(*layers));
	int r = layers ? 0 : -ENOMEM;
	bool fits = true;

	if (r == 0)
		layers[0] = (struct layer){.items = &none, .n = 1};
	for (size_t i = 0; r == 0 && i < n; i++) {
		r = layer_next(nodes, options, n, i, &layers[i], &layers[i + 1]);
		fits = fits && r == 0 && layers[i + 1].n;
	}
	if (r == 0 && fits) {
		size_t at = best_of(&layers[n]);

		*ret_sum = layers[n].items[at].sum;
		for (size_t i = n; i > 0; i--) {
			ret_choice[i - 1] = layers[i].items[at].option;
			at = layers[i].items[at].parent;
		}
	} else if (r == 0) { /* thinned out too much */
		*ret_sum = 0;
		for (size_t i = 0; i < n; i++) {
			ret_choice[i] = options[i]->safe;
			*ret_sum += options[i]->items[options[i]->safe].relative;
		}
	}
	for (size_t i = 1; layers && i <= n; i++)
		free(layers[i].items);
	free(layers);
	return r;
}

/* ---- shares of the jobs of one node ------------------------------------------------------------------ */

int place_choose(struct placement *place, size_t node, double *ret_sum)
{
	struct place_node *at = &place->nodes[node];
	const struct plan_options **options = calloc(at->n_jobs + 1, sizeof(struct plan_options *));
	size_t *choice = calloc(at->n_jobs + 1, sizeof(*choice));
	int r = options && choice ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < at->n_jobs; i++)
		options[i] = plan_options_of(place->table, at->jobs[i], node);
	if (r == 0)
		r = plan_choose(plan_node(place->table->cluster, node), options, at->n_jobs, choice, ret_sum);
	for (size_t i = 0; r == 0 && i < at->n_jobs; i++)
		place->choice[at->jobs[i]] = choice[i];
	free(options);
	free(choice);
	return r;
}

/* ---- placing ----------------------------------------------------------------------------------------- */

/* A job's need, for the order of placing: larger jobs first, then those with larger wishes. */
struct plan_turn {
	size_t job;
	uint32_t accelerators;
	double wish;
};

static int by_turn(const void *a, const void *b)
{
	const struct plan_turn *one = a, *other = b;

	if (one->accelerators != other->accelerators)
		return one->accelerators > other->accelerators ? -1 : 1;
	if (one->wish != other->wish)
		return one->wish > other->wish ? -1 : 1;
	return (one->job > other->job) - (one->job < other->job);
}

static double wish_part(const struct plan_table *table, size_t job)
{
	const struct plan_nodes *size = &table->cluster->kinds[0];
	const struct plan_option *wish = plan_wish(&table->options[job * table->cluster->n_kinds]);

	return fmax(wish->cores / size->cores, wish->memory_bytes / size->memory_bytes);
}

/* Chooses the jobs that get accelerators: in their order, as long as there are enough. */
static size_t turns_take(const struct plan_table *table, struct plan_turn *turns)
{
	uint64_t free_accelerators = 0;
	size_t n = 0;

	for (size_t kind = 0; kind < table->cluster->n_kinds; kind++)
		free_accelerators +=
		    (uint64_t)table->cluster->kinds[kind].n * table->cluster->kinds[kind].accelerators;
	for (size_t job = 0; job < table->n_jobs; job++) {
		uint32_t accelerators = table->jobs[job].accelerators;

		if (accelerators > free_accelerators)
			continue;
		free_accelerators -= accelerators;
		turns[n++] = (struct plan_turn){job, accelerators, wish_part(table, job)};
	}
	return n;
}

/* lacks: one per job. */
static int place_all(struct placement *place, enum plan_strategy strategy, enum plan_lack *lacks)
{
	struct plan_turn *turns = calloc(place->table->n_jobs + 1, sizeof(*turns));
	size_t n = turns ? turns_take(place->table, turns) : 0;
	int r = turns ? 0 : -ENOMEM;

	if (r == 0 && strategy != PLAN_GREEDY)
		qsort(turns, n, sizeof(*turns), by_turn);
	for (size_t i = 0; r == 0 && i < n; i++) {
		size_t node = place_find(place, turns[i].job, strategy, &lacks[turns[i].job]);

		if (node != PLAN_WAITS)
			r = place_put(place, turns[i].job, node);
	}
	free(turns);
	return r;
}

/* ---- swaps ------------------------------------------------------------------------------------------- */

/* Enough for plans to stop improving on clusters of hundreds of nodes; each try costs two choices. */
#define SWAPS_PER_NODE 64

/* Returns what the job would gain if its wish came true. */
static double shortfall(const struct placement *place, size_t job)
{
	const struct plan_options *options = plan_options_of(place->table, job, place->node_of[job]);

	return plan_wish(options)->relative - options->items[place->choice[job]].relative;
}

static int choose_both(struct placement *place, size_t a, size_t b, double *ret_sum)
{
	double sum_a = 0, sum_b = 0;
	int r = place_choose(place, a, &sum_a);

	if (r == 0)
		r = place_choose(place, b, &sum_b);
	if (r == 0)
		*ret_sum = sum_a + sum_b;
	return r;
}

static int swap_jobs(struct placement *place, size_t one, size_t other)
{
	size_t a = place->node_of[one], b = place->node_of[other];
	int r;

	place_take(place, one);
	place_take(place, other);
	r = place_put(place, one, b);
	return r < 0 ? r : place_put(place, other, a);
}

/* Swaps two jobs if that raises the sum of both nodes. Returns 1 if it did, 0, or -ENOMEM. */
static int swap_try(struct placement *place, size_t one, size_t other)
{
	size_t a = place->node_of[one], b = place->node_of[other];
	double before = 0, after = 0;
	int r = choose_both(place, a, b, &before);

	if (r == 0)
		r = swap_jobs(place, one, other);
	if (r == 0)
		r = choose_both(place, a, b, &after);
	if (r < 0 || after > before + 1e-6)
		return r < 0 ? r : 1;
	r = swap_jobs(place, one, other);
	return r < 0 ? r : choose_both(place, a, b, &before);
}

/* Returns the node's job that falls shortest of its wish; PLAN_WAITS if none does. */
static size_t neediest(const struct placement *place, size_t node, size_t turn)
{
	const struct place_node *at = &place->nodes[node];
	size_t found = PLAN_WAITS, n = 0;

	/* The turn-th of those that fall short, so that repeated calls try each of them. */
	for (size_t i = 0; i < at->n_jobs; i++)
		n += shortfall(place, at->jobs[i]) > TOLERANCE;
	for (size_t i = 0, k = 0; n && i < at->n_jobs && found == PLAN_WAITS; i++)
		if (shortfall(place, at->jobs[i]) > TOLERANCE && k++ == turn % n)
			found = at->jobs[i];
	return found;
}

int place_swap(struct placement *place, size_t node, size_t *tries, bool *ret_better)
{
	int r = 0;

	for (size_t other = 0; r == 0 && other < place->n_nodes; other++)
		for (size_t i = 0; r == 0 && *tries && other != node && i < place->nodes[other].n_jobs; i++) {
			size_t one = neediest(place, node, i), job = place->nodes[other].jobs[i];

			if (one == PLAN_WAITS || place->further[one] || place->further[job] ||
			    place->table->jobs[one].accelerators != place->table->jobs[job].accelerators)
				continue;
			--*tries;
			r = swap_try(place, one, job);
			*ret_better |= r == 1;
			r = r < 0 ? r : 0;
		}
	return r;
}

static int swaps_make(struct placement *place)
{
	size_t tries = SWAPS_PER_NODE * place->n_nodes;
	bool better = true;
	int r = 0;

	while (better && r == 0) {
		better = false;
		for (size_t node = 0; r == 0 && node < place->n_nodes; node++)
			r = place_swap(place, node, &tries, &better);
	}
	return r;
}

/* ---- the plan ---------------------------------------------------------------------------------------- */

/* Returns false if the job is slower with that much: too many threads, for example. */
static bool is_harmless(const struct placement *place, size_t job, const struct plan_share *share,
			double cores, double memory_bytes)
{
	bool interpolated;
	double speed = plan_speed(place->table->cluster, plan_node(place->table->cluster, share->node),
				  &place->table->jobs[job], cores, memory_bytes, &interpolated);

	return !(share->speed > 0) || speed >= share->speed * (1 - TOLERANCE);
}

/* Gives cores and memory that are left over to the jobs that have less than their proportional share. They
 * do not need it, as far as the model knows. */
static void shares_round_up(const struct placement *place, size_t node, struct plan_share *shares)
{
	const struct plan_cluster *cluster = place->table->cluster;
	const struct plan_nodes *size = plan_node(cluster, node);
	const struct place_node *at = &place->nodes[node];
	double cores = size->cores, memory_bytes = size->memory_bytes;

	for (size_t i = 0; i < at->n_jobs; i++) {
		cores -= shares[at->jobs[i]].cores;
		memory_bytes -= shares[at->jobs[i]].memory_bytes;
	}
	for (size_t i = 0; i < at->n_jobs; i++) {
		struct plan_share *share = &shares[at->jobs[i]];
		struct plan_share usual = plan_home(cluster, size, &place->table->jobs[at->jobs[i]]);
		double more = fmin(fmax(0, usual.cores - share->cores), fmax(0, cores));
		double more_bytes =
		    fmin(fmax(0, usual.memory_bytes - share->memory_bytes), fmax(0, memory_bytes));

		if (cluster->core_step > 0)
			more = floor(more / cluster->core_step * (1 + TOLERANCE)) * cluster->core_step;
		if (!is_harmless(place, at->jobs[i], share, share->cores + more, share->memory_bytes))
			more = 0;
		if (!is_harmless(place, at->jobs[i], share, share->cores + more,
				 share->memory_bytes + more_bytes))
			more_bytes = 0;
		share->cores += more;
		share->memory_bytes += more_bytes;
		cores -= more;
		memory_bytes -= more_bytes;
	}
}

/* Returns the share of the job's home. */
static struct plan_share share_of(const struct placement *place, size_t job, enum plan_strategy strategy)
{
	size_t node = place->node_of[job];
	const struct plan_options *options;
	const struct plan_option *option;

	if (node == PLAN_WAITS)
		return (struct plan_share){.node = PLAN_WAITS};
	if (strategy == PLAN_EQUAL) {
		struct plan_share share = plan_home(
		    place->table->cluster, plan_node(place->table->cluster, node), &place->table->jobs[job]);

		share.node = node;
		return share;
	}
	options = plan_options_of(place->table, job, node);
	option = strategy == PLAN_TUNE ? &options->items[place->choice[job]] : plan_wish(options);
	return (struct plan_share){.node = node,
				   .cores = option->cores,
				   .memory_bytes = option->memory_bytes,
				   .speed = option->speed,
				   .relative = option->relative};
}

static size_t n_parts_of(const struct placement *place, size_t job)
{
	size_t node = place->node_of[job];

	return node == PLAN_WAITS ? 0 : shape_at(place, job, node).n_further + 1;
}

/* Makes the parts of each job out of the share of its home. -ENOMEM. */
static int parts_make(const struct placement *place, struct plan *plan)
{
	const struct plan_cluster *cluster = place->table->cluster;
	size_t n = 0;

	for (size_t job = 0; job < place->table->n_jobs; job++)
		n += n_parts_of(place, job);
	plan->parts = calloc(n + 1, sizeof(*plan->parts));
	if (!plan->parts)
		return -ENOMEM;
	for (size_t job = 0; job < place->table->n_jobs; job++) {
		struct plan_share *share = &plan->shares[job];

		share->first_part = plan->n_parts;
		share->n_parts = n_parts_of(place, job);
		if (!share->n_parts)
			continue;
		plan->parts[plan->n_parts++] = (struct plan_part){
		    share->node, shape_at(place, job, share->node).home, share->cores, share->memory_bytes};
		for (size_t i = 0; i + 1 < share->n_parts; i++) {
			struct plan_part part = plan_further(cluster, plan_node(cluster, share->node));

			part.node = place->further[job][i];
			share->cores += part.cores;
			share->memory_bytes += part.memory_bytes;
			plan->parts[plan->n_parts++] = part;
		}
	}
	return 0;
}

static int shares_make(struct placement *place, enum plan_strategy strategy, const enum plan_lack *lacks,
		       struct plan *ret_plan)
{
	size_t n_jobs = place->table->n_jobs;
	struct plan plan = {.shares = calloc(n_jobs + 1, sizeof(*plan.shares))};
	double sum;
	int r = plan.shares ? 0 : -ENOMEM;

	for (size_t node = 0; r == 0 && strategy == PLAN_TUNE && node < place->n_nodes; node++)
		r = place_choose(place, node, &sum);
	if (r == 0 && strategy == PLAN_TUNE)
		r = swaps_make(place);
	if (r < 0) {
		free(plan.shares);
		return r;
	}
	for (size_t job = 0; job < n_jobs; job++) {
		plan.shares[job] = share_of(place, job, strategy);
		plan.shares[job].lack = lacks[job];
		plan.total += plan.shares[job].relative;
		plan.n_waiting += plan.shares[job].node == PLAN_WAITS;
	}
	for (size_t node = 0; strategy == PLAN_TUNE && node < place->n_nodes; node++)
		shares_round_up(place, node, plan.shares);
	r = parts_make(place, &plan);
	if (r < 0) {
		free(plan.shares);
		return r;
	}
	*ret_plan = plan;
	return 0;
}

static bool sane(const struct plan_cluster *cluster, const struct plan_job *jobs, size_t n_jobs)
{
	for (size_t kind = 0; kind < cluster->n_kinds; kind++)
		if (!cluster->kinds[kind].n || !cluster->kinds[kind].accelerators ||
		    !(cluster->kinds[kind].cores > 0) || !(cluster->kinds[kind].memory_bytes > 0))
			return false;
	for (size_t job = 0; job < n_jobs; job++)
		if (!jobs[job].accelerators || !jobs[job].n_cores || !jobs[job].n_memory)
			return false;
	return cluster->n_kinds > 0;
}

int plan_make(const struct plan_cluster *cluster, const struct plan_job *jobs, size_t n_jobs,
	      enum plan_strategy strategy, struct plan *ret_plan)
{
	struct plan_table table = {0};
	struct placement place = {0};
	enum plan_lack *lacks = calloc(n_jobs + 1, sizeof(*lacks));
	int r = sane(cluster, jobs, n_jobs) ? 0 : -EINVAL;

	if (!lacks)
		r = -ENOMEM;
	for (size_t i = 0; lacks && i < n_jobs; i++)
		lacks[i] = PLAN_LACKS_ACCELERATORS;
	if (r == 0)
		r = plan_table_make(cluster, jobs, n_jobs, &table);
	if (r == 0)
		r = place_init(&table, &place);
	if (r == 0)
		r = place_all(&place, strategy, lacks);
	if (r == 0)
		r = shares_make(&place, strategy, lacks, ret_plan);
	free(lacks);
	place_free(&place);
	if (table.options)
		plan_table_free(&table);
	return r;
}

void plan_free(struct plan *plan)
{
	free(plan->shares);
	free(plan->parts);
	*plan = (struct plan){0};
}
