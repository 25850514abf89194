/* SPDX-License-Identifier: Apache-2.0 */

/* Finds why a kernel refused a program from libbpf's messages. The messages here are from kernels that
 * refused one. */

#include "tests/support.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include <bpf/libbpf.h>

#include "bpf/collect/refusal.h"

static void speak(const char *format, ...)
{
	libbpf_print_fn_t heard = libbpf_set_print(NULL);
	va_list args;

	libbpf_set_print(heard);
	va_start(args, format);
	heard(LIBBPF_WARN, format, args);
	va_end(args);
}

/* Linux 5.15 returns -EACCES to root for a tracepoint that has fewer arguments. */
TEST(the_verifier_is_no_want_of_privilege)
{
	refusal_listen();
	speak("libbpf: prog '%s': BPF program load failed: %s\n", "sched_switch", "Permission denied");
	assert_true(refusal_of_privilege(-EACCES));
	speak("libbpf: prog '%s': -- BEGIN PROG LOAD LOG --\n%s-- END PROG LOAD LOG --\n", "sched_switch",
	      "func 'sched_switch' doesn't have 4-th argument\ninvalid bpf_context access off=24 size=8\n"
	      "processed 4 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 "
	      "mark_read 0\n");
	speak("libbpf: prog '%s': failed to load: %d\n", "sched_switch", -13);
	speak("libbpf: failed to load object '%s'\n", "recorder");
	assert_string_equal(refusal_get()->program, "sched_switch");
	assert_string_equal(refusal_get()->reason, "invalid bpf_context access off=24 size=8");
	assert_false(refusal_of_privilege(-EACCES));
	assert_false(refusal_of_privilege(-EPERM));
}

TEST(without_the_verifier_it_is_privilege)
{
	refusal_listen();
	assert_true(refusal_of_privilege(-EPERM));
	speak("libbpf: prog '%s': BPF program load failed: %s\n", "sys_exit", "Operation not permitted");
	speak("libbpf: prog '%s': failed to load: %d\n", "sys_exit", -1);
	assert_true(refusal_of_privilege(-EPERM));
	assert_false(refusal_of_privilege(-EINVAL));
}

/* Linux 7.3 has a field of another size, so libbpf itself refuses the program. */
TEST(the_first_words_are_the_reason)
{
	refusal_listen();
	speak("libbpf: prog '%s': relo #%d: insn #%d accesses field incorrectly.\n", "tag_tasks", 22, 7);
	speak("libbpf: prog '%s': relo #%d: failed to relocate: %d\n", "tag_tasks", 22, -22);
	assert_string_equal(refusal_get()->program, "tag_tasks");
	assert_non_null(strstr(refusal_get()->reason, "accesses field incorrectly"));
}

TEST(the_last_program_counts)
{
	refusal_listen();
	speak("libbpf: prog '%s': -- BEGIN PROG LOAD LOG --\nR1 is bad\n-- END PROG LOAD LOG --\n", "a");
	speak("libbpf: prog '%s': BPF program load failed: %s\n", "b", "Operation not permitted");
	assert_string_equal(refusal_get()->program, "b");
	assert_true(refusal_of_privilege(-EPERM));
	refusal_listen();
	assert_string_equal(refusal_get()->program, "");
}
