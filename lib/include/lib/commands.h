/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Commands of ours in texts, as `dieselctl verify ...`, for users whose PATH does not have the programs: of a
 * virtual environment, say, whose programs are called by their paths. */

/* The text with such commands as they can be run: by the path of a program beside this one; behind sudo,
 * which has a PATH of its own, too; and with the dataset, if not NULL, where it is all that one of
 * dieselctl's lacks, and in quotes, where a shell takes its name for several words. NULL: no memory. */
char *commands_runnable_new(const char *text, const char *dataset);

/* Returns a word as a command needs it: in quotes, where a shell would interpret it. NULL: no memory. */
char *commands_word_new(const char *word);
