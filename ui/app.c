/* SPDX-License-Identifier: Apache-2.0 */
#define NCURSES_WIDECHAR 1
#include "app.h"

/* Include these before term.h, which makes macros of words such as `columns`. */
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "options.h"
#include "ui/feed/budget.h"
#include "ui/feed/feed.h"
#include "ui/replay/top_recording.h"
#include "ui/view/frame.h"
#include "ui/view/model.h"
#include "ui/view/screen.h"

#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

/*
 * Drives the terminal; no other file uses ncurses. The terminal is restored however the program ends or
 * stops: by terminal_close(), a signal that the program handles, SIGTSTP, or a signal that kills it
 * (SIGSEGV, SIGABRT, ...). Only SIGKILL prevents this. A process has one terminal, so there is no object.
 */

/* State of the terminal. It is global, because a signal handler gets no pointer and a process has one
 * terminal. */
static struct {
	bool is_open;
	SCREEN *curses;
	struct charset charset;
	bool has_colour; /* the terminal has colours; charset.colour may be switched off and on */
	struct cell *shown;
	int rows, cols;    /* size of `shown` */
	bool shown_colour; /* colour setting with which `shown` was drawn */
	struct termios before;
	char restore[256]; /* escape sequence that restores the terminal, for the signal handler */
	size_t restore_bytes;
} terminal;

/* Signals that end a process by default. Without those that people send, which a signalfd delivers, and
 * without SIGPIPE, which is ignored because write() reports the error. */
static const int fatal_signals[] = {SIGSEGV, SIGBUS,    SIGFPE,  SIGILL,  SIGABRT, SIGSYS,
				    SIGTRAP, SIGALRM,   SIGUSR1, SIGUSR2, SIGXCPU, SIGVTALRM,
				    SIGPROF, SIGSTKFLT, SIGIO,   SIGPWR};
#define N_FATAL (sizeof(fatal_signals) / sizeof(fatal_signals[0]))

/* Calls only functions that are safe in a signal handler: write, tcsetattr, raise. */
static void on_fatal(int signal_number)
{
	ssize_t ignored = write(STDOUT_FILENO, terminal.restore, terminal.restore_bytes);

	(void)ignored;
	tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
	raise(signal_number); /* SA_RESETHAND has restored the default action, which ends the process */
}

static void restore_add(const char *capability)
{
	const char *text = tigetstr(capability);
	size_t n;

	if (!text || text == (const char *)-1)
		return;
	n = strlen(text);
	if (terminal.restore_bytes + n > sizeof(terminal.restore))
		return;
	memcpy(terminal.restore + terminal.restore_bytes, text, n);
	terminal.restore_bytes += n;
}

static void catch_fatal(void)
{
	static char stack[16384]; /* a separate stack, because the ordinary one may have overflowed */
	struct sigaction action = {.sa_handler = on_fatal,
				   .sa_flags = (int)(SA_RESETHAND | SA_ONSTACK | SA_NODEFER)};

	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGTTOU); /* without this, tcsetattr() would stop a background process */

	sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof(stack)}, NULL);
	restore_add("sgr0");
	restore_add("cnorm");
	restore_add("rmkx");
	restore_add("rmcup");
	for (size_t i = 0; i < N_FATAL; i++)
		sigaction(fatal_signals[i], &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void make_colours(void)
{
	static const short foreground[STYLE_COUNT] = {
	    [STYLE_TITLE] = COLOR_CYAN,  [STYLE_HEADING] = COLOR_BLACK,      [STYLE_SELECTED] = COLOR_BLACK,
	    [STYLE_LABEL] = COLOR_BLACK, [STYLE_GOOD] = COLOR_GREEN,         [STYLE_WARNING] = COLOR_YELLOW,
	    [STYLE_BAD] = COLOR_RED,     [STYLE_DEVICE] = COLOR_GREEN,       [STYLE_FETCH] = COLOR_RED,
	    [STYLE_PREP] = COLOR_YELLOW, [STYLE_CHECKPOINT] = COLOR_MAGENTA, [STYLE_STARVED] = COLOR_CYAN,
	    [STYLE_OTHER] = COLOR_BLUE,  [STYLE_COMPILING] = COLOR_WHITE,
	};
	static const short background[STYLE_COUNT] = {
	    [STYLE_HEADING] = COLOR_GREEN,
	    [STYLE_SELECTED] = COLOR_CYAN,
	    [STYLE_LABEL] = COLOR_CYAN,
	};

	start_color();
	use_default_colors();
	for (int i = 1; i < STYLE_COUNT; i++)
		init_pair((short)i, i == STYLE_DIM || i == STYLE_BOLD || i == STYLE_KEY ? -1 : foreground[i],
			  background[i] ? background[i] : -1);
}

static attr_t attributes(enum style style, bool colour)
{
	switch (style) {
	case STYLE_DIM: return A_DIM;
	case STYLE_BOLD:
	case STYLE_TITLE:
	case STYLE_BAD: return A_BOLD;
	case STYLE_HEADING: return colour ? A_NORMAL : A_UNDERLINE;
	case STYLE_SELECTED:
	case STYLE_LABEL: return colour ? A_NORMAL : A_REVERSE;
	case STYLE_WARNING: return colour ? A_NORMAL : A_BOLD;
	case STYLE_NORMAL:
	case STYLE_KEY:
	case STYLE_GOOD:
	case STYLE_DEVICE:
	case STYLE_FETCH:
	case STYLE_PREP:
	case STYLE_CHECKPOINT:
	case STYLE_STARVED:
	case STYLE_OTHER:
	case STYLE_COMPILING:
	case STYLE_COUNT: break;
	}
	return A_NORMAL;
}

static bool has_plain_style(enum style style)
{
	return style == STYLE_NORMAL || style == STYLE_DIM || style == STYLE_BOLD || style == STYLE_KEY;
}

/* Takes over the terminal. -ENOTTY: no terminal; -ENODEV: its TERM is unknown. */
static int terminal_open(const struct top_options *options, struct error *err)
{
	const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
	bool utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return error_set(err, -ENOTTY,
				 "standard input and output are not a terminal: use --batch for tables, or "
				 "--once for JSON");
	if (tcgetattr(STDIN_FILENO, &terminal.before))
		return error_errno(err, -errno, "cannot use the terminal");
	terminal.curses = newterm(NULL, stdout, stdin);
	if (!terminal.curses)
		return error_set(
		    err, -ENODEV,
		    "cannot use a terminal of type \"%.60s\": set TERM, or use --batch or --once",
		    term ? term : "");
	set_escdelay(25);
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	leaveok(stdscr, TRUE);
	curs_set(0);
	terminal.is_open = true;
	catch_fatal();
	terminal.has_colour = has_colors() && !options->no_colour && !(no_colour && *no_colour);
	if (terminal.has_colour)
		make_colours();
	terminal.charset =
	    (struct charset){.unicode = utf8 && !options->ascii, .colour = terminal.has_colour};
	return 0;
}

static void terminal_close(void)
{
	if (!terminal.is_open)
		return;
	terminal.is_open = false;
	endwin();
	delscreen(terminal.curses);
	tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
	free(terminal.shown);
	terminal.shown = NULL;
	for (size_t i = 0; i < N_FATAL; i++)
		signal(fatal_signals[i], SIG_DFL);
}

/* Returns what the terminal supports and the options permit. */
static struct charset terminal_charset(void)
{
	return terminal.charset;
}

/* Makes the next terminal_show() draw everything. */
static void terminal_redraw(void)
{
	free(terminal.shown);
	terminal.shown = NULL;
	clearok(stdscr, TRUE);
}

/* Returns the current size. Call it at the start and after SIGWINCH. */
static void terminal_size(int *ret_rows, int *ret_cols)
{
	struct winsize size;

	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row && size.ws_col &&
	    (size.ws_row != LINES || size.ws_col != COLS)) {
		resizeterm(size.ws_row, size.ws_col);
		terminal_redraw();
	}
	*ret_rows = LINES;
	*ret_cols = COLS;
}

static void show_cell(int y, int x, const struct cell *cell, bool colour)
{
	const wchar_t text[] = {cell->base, cell->mark, 0};
	enum style style = (enum style)cell->style;
	cchar_t character;

	setcchar(&character, text, attributes(style, colour),
		 colour && !has_plain_style(style) ? (short)style : 0, NULL);
	mvadd_wch(y, x, &character);
}

/* Draws the cells that changed since the last call. Returns their number. */
static size_t terminal_show(const struct screen *screen)
{
	size_t n = (size_t)screen->rows * (size_t)screen->cols, n_changed = 0;
	bool colour = screen->charset.colour && terminal.has_colour;
	bool fresh = !terminal.shown || terminal.rows != screen->rows || terminal.cols != screen->cols ||
		     terminal.shown_colour != colour;

	if (!fresh && !memcmp(terminal.shown, screen->cells, n * sizeof(*screen->cells)))
		return 0;
	if (fresh) {
		free(terminal.shown);
		terminal.shown = calloc(n + 1, sizeof(*terminal.shown));
		erase();
	}
	for (size_t i = 0; i < n; i++) {
		const struct cell *cell = &screen->cells[i];

		if (!fresh && !memcmp(cell, &terminal.shown[i], sizeof(*cell)))
			continue;
		n_changed++;
		if (cell->base)
			show_cell((int)(i / (size_t)screen->cols), (int)(i % (size_t)screen->cols), cell,
				  colour);
	}
	refresh();
	if (terminal.shown)
		memcpy(terminal.shown, screen->cells, n * sizeof(*screen->cells));
	terminal.rows = screen->rows;
	terminal.cols = screen->cols;
	terminal.shown_colour = colour;
	return n_changed;
}

static unsigned int translate(wint_t key)
{
	switch (key) {
	case KEY_UP: return MODEL_KEY_UP;
	case KEY_DOWN: return MODEL_KEY_DOWN;
	case KEY_LEFT: return MODEL_KEY_LEFT;
	case KEY_RIGHT: return MODEL_KEY_RIGHT;
	case KEY_PPAGE: return MODEL_KEY_PAGE_UP;
	case KEY_NPAGE: return MODEL_KEY_PAGE_DOWN;
	case KEY_HOME: return MODEL_KEY_HOME;
	case KEY_END: return MODEL_KEY_END;
	case KEY_BACKSPACE: return MODEL_KEY_BACKSPACE;
	case KEY_BTAB: return MODEL_KEY_BACK_TAB;
	case KEY_ENTER: return '\n';
	default: break;
	}
	if (key >= KEY_F(1) && key <= KEY_F(10))
		return MODEL_KEY_F1 + (key - KEY_F(1));
	return 0x10ffff; /* an invalid key, which has no effect; 0 would mean no key */
}

/* Returns the next key, in the form that model_key() takes; 0: none is pending. */
static unsigned int terminal_key(void)
{
	wint_t key;
	int r = get_wch(&key);

	if (r == ERR)
		return 0;
	return r == KEY_CODE_YES ? translate(key) : key ? (unsigned int)key : 0x10ffff;
}

/* Restores the terminal and stops the process, as SIGTSTP does. Returns when the process continues. */
static void terminal_suspend(void)
{
	endwin();
	kill(getpid(), SIGSTOP);
	terminal_redraw();
	refresh();
}

/* Number of records before a jump in a replay that are also read, for the plot. */
#define REWIND_RECORDS "120"
#define REWIND_N       120

struct app {
	struct feed *feed;
	struct top_recording_writer *recording;
	struct model model;
	struct screen *screen;
	int signal_fd;
	uint64_t next_sample_ns;
	bool is_dirty;
	int signal_number; /* the signal that ends the program */
	bool quits;
	uint64_t draw_ns, n_cells;             /* totals of drawing so far */
	uint64_t draw_before_ns, cells_before; /* totals of drawing at the last sample */
};

static void take_own_cost(struct app *app, struct top_sample *sample)
{
	double s = sample->interval_s;

	if (app->model.is_replay || !(s > 0))
		return;
	sample->self.draw_ratio = (double)(app->draw_ns - app->draw_before_ns) / 1e9 / s;
	sample->self.cells_per_s = (double)(app->n_cells - app->cells_before) / s;
	app->draw_before_ns = app->draw_ns;
	app->cells_before = app->n_cells;
}

static int take_sample(struct app *app, uint64_t now_ns, struct error *err)
{
	struct top_sample *sample;
	struct error why = ERROR_INIT;
	int r = app->feed->ops->sample(app->feed, model_wants(&app->model), now_ns, &sample, err);

	app->model.at_end = r == -ENODATA;
	if (r == -ENODATA) {
		app->is_dirty = true;
		app->model.paused = true;
		return 0;
	}
	if (r < 0)
		return r;
	take_own_cost(app, sample);
	if (app->recording && top_recording_write(app->recording, sample, &why)) {
		snprintf(app->model.message, sizeof(app->model.message), "%.150s", why.text);
		app->recording = NULL; /* the caller of app_run() closes the recording */
		app->model.is_recording = false;
	}
	app->model.n_skipped = app->feed->ops->n_skipped ? app->feed->ops->n_skipped(app->feed) : 0;
	app->is_dirty = true;
	return model_take(&app->model, sample) ? error_set(err, -ENOMEM, "no memory for a sample") : 0;
}

/* Jumps in a replay. Also reads the records before, as far back as the plot reaches. */
static int seek(struct app *app, enum feed_seek where, const char *time, struct error *err)
{
	struct error why = ERROR_INIT;
	int r = app->feed->ops->seek(app->feed, where, time, &why);

	if (r == -EINVAL) {
		snprintf(app->model.message, sizeof(app->model.message), "%.150s", why.text);
		app->is_dirty = true;
		return 0;
	}
	history_clear(&app->model.history);
	app->model.sample = sample_free(app->model.sample);
	app->model.paused = true;
	r = app->feed->ops->seek(app->feed, FEED_SEEK_REWIND, REWIND_RECORDS, err);
	for (int i = 0; r >= 0 && i <= r; i++) {
		int taken = take_sample(app, clock_monotonic_ns(), err);

		if (taken)
			return taken;
	}
	return r < 0 ? r : 0;
}

static int act(struct app *app, enum model_action action, struct error *err)
{
	if (action == MODEL_NOTHING)
		return 0;
	app->is_dirty = true;
	switch (action) {
	case MODEL_REFRESH: app->next_sample_ns = app->model.paused ? app->next_sample_ns : 0; break;
	case MODEL_QUIT: app->quits = true; break;
	case MODEL_FORWARD: app->model.paused = true; return take_sample(app, clock_monotonic_ns(), err);
	case MODEL_BACKWARD: return seek(app, FEED_SEEK_BACK, NULL, err);
	case MODEL_FIRST: return seek(app, FEED_SEEK_FIRST, NULL, err);
	case MODEL_LAST: return seek(app, FEED_SEEK_LAST, NULL, err);
	case MODEL_JUMP: return seek(app, FEED_SEEK_TIME, app->model.input, err);
	case MODEL_NOTHING:
	case MODEL_REDRAW: break;
	}
	return 0;
}

static int take_keys(struct app *app, struct error *err)
{
	unsigned int key;
	int r = 0;

	while (r == 0 && !app->quits && (key = terminal_key()))
		r = act(app, model_key(&app->model, key), err);
	return r;
}

static void take_signals(struct app *app)
{
	struct signalfd_siginfo info;

	while (read(app->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGTSTP:
			terminal_suspend();
			app->is_dirty = true;
			break;
		case SIGCONT:
			terminal_redraw();
			app->is_dirty = true;
			break;
		case SIGWINCH: app->is_dirty = true; break;
		default: app->signal_number = (int)info.ssi_signo; break;
		}
	}
}

static int draw(struct app *app, struct error *err)
{
	uint64_t cpu_ns = budget_cpu_ns();
	int rows, cols;

	terminal_size(&rows, &cols);
	if (!app->screen || app->screen->rows != rows || app->screen->cols != cols) {
		screen_free(app->screen);
		app->screen = screen_new(rows, cols, app->model.charset);
		if (!app->screen)
			return error_set(err, -ENOMEM, "no memory for the screen");
	}
	frame_draw(&app->model, app->screen);
	app->n_cells += terminal_show(app->screen);
	app->is_dirty = false;
	app->draw_ns += budget_cpu_ns() - cpu_ns;
	return 0;
}

static int wait_ms(const struct app *app, uint64_t now_ns, uint64_t work_ns)
{
	uint64_t until_ns =
	    app->model.paused || app->next_sample_ns > work_ns ? work_ns : app->next_sample_ns;

	return until_ns > now_ns ? (int)((until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS) : 0;
}

static int loop(struct app *app, struct error *err)
{
	struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
			       {.fd = app->signal_fd, .events = POLLIN}};
	int r = 0;

	while (r == 0 && !app->quits && !app->signal_number) {
		uint64_t now_ns = clock_monotonic_ns(), work_ns = now_ns + 60 * NS_PER_S;

		app->feed->ops->work(app->feed, now_ns, &work_ns);
		if (!app->model.paused && now_ns >= app->next_sample_ns) {
			r = take_sample(app, now_ns, err);
			app->next_sample_ns = now_ns + (uint64_t)(app->model.interval_s * 1e9);
		}
		if (r == 0 && app->is_dirty)
			r = draw(app, err);
		if (r < 0)
			break;
		if (poll(fds, 2, wait_ms(app, clock_monotonic_ns(), work_ns)) < 0 && errno != EINTR)
			return error_errno(err, -errno, "cannot wait for keys from the terminal");
		take_signals(app);
		/* After a hangup, a terminal is readable but has no keys. */
		if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL))
			app->signal_number = SIGHUP;
		if (fds[0].revents & POLLIN)
			r = take_keys(app, err);
	}
	return r;
}

static int take_signals_by_fd(struct app *app, struct error *err)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
	sigset_t signals;

	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&signals, numbers[i]);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	app->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	return app->signal_fd < 0 ? error_errno(err, -errno, "cannot take signals") : 0;
}

static void set_up_model(struct app *app, const struct top_options *options)
{
	model_init(&app->model, terminal_charset(), options->interval_s);
	if (options->source == OPTIONS_NODES)
		model_set_fleet(&app->model);
	if (options->sort)
		model_sort_by(&app->model, VIEW_JOBS, options->sort);
	if (options->filter)
		snprintf(app->model.filter, sizeof(app->model.filter), "%s", options->filter);
	app->model.is_replay = options->read_path != NULL;
	app->model.is_recording = app->recording != NULL;
	if (options->tree) {
		app->model.tree = true;
		app->model.view = VIEW_WORKERS;
	}
}

int app_run(struct feed *feed, const struct top_options *options, struct top_recording_writer *recording,
	    int *ret_signal, struct error *err)
{
	struct app app = {.feed = feed, .recording = recording, .signal_fd = -1, .is_dirty = true};
	int r = take_signals_by_fd(&app, err);

	if (r == 0)
		r = terminal_open(options, err);
	if (r == 0) {
		set_up_model(&app, options);
		r = loop(&app, err);
		terminal_close();
		model_destroy(&app.model);
	}
	screen_free(app.screen);
	closep(&app.signal_fd);
	*ret_signal = app.signal_number;
	return r;
}
