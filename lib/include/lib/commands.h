/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Commands of our programs in texts, such as `dieselctl verify ...`, for users whose PATH lacks the
 * programs: for example, those of a virtual environment, which users call by their paths. */

/* Returns the text with its commands as a user can run them. A program that is not in PATH is replaced by
 * its path next to this program, also after sudo, whose PATH differs. The dataset, if not NULL, is added
 * to commands of dieselctl that lack only a dataset, in quotes where a shell would split its name. NULL:
 * no memory. */
char *commands_runnable_new(const char *text, const char *dataset);

/* Returns a word for use in a command: in quotes if a shell would interpret it. NULL: no memory. */
char *commands_word_new(const char *word);
