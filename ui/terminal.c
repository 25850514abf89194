/* SPDX-License-Identifier: Apache-2.0 */
#define NCURSES_WIDECHAR 1
#include "terminal.h"

/* Include these before term.h, which makes macros of words such as `columns`. */
#include "lib/error.h"
#include "ui/view/model.h"

#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

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

int terminal_open(const struct terminal_options *options, struct error *err)
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

void terminal_close(void)
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

struct charset terminal_charset(void)
{
	return terminal.charset;
}

void terminal_size(int *ret_rows, int *ret_cols)
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

void terminal_redraw(void)
{
	free(terminal.shown);
	terminal.shown = NULL;
	clearok(stdscr, TRUE);
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

size_t terminal_show(const struct screen *screen)
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

unsigned int terminal_key(void)
{
	wint_t key;
	int r = get_wch(&key);

	if (r == ERR)
		return 0;
	return r == KEY_CODE_YES ? translate(key) : key ? (unsigned int)key : 0x10ffff;
}

void terminal_suspend(void)
{
	endwin();
	kill(getpid(), SIGSTOP);
	terminal_redraw();
	refresh();
}
