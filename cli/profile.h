/* profile.h: declarations that the files of braid profile share. */
#ifndef BRAID_CLI_PROFILE_H
#define BRAID_CLI_PROFILE_H

#include <jansson.h>

#include "cli/cli.h"

/* Prints a profile (the JSON of braid_session_profile) as a table. */
void profile_print(Sb *s, const char *model, const json_t *profile);
/* Prints its timeline in the format of Chrome's trace events, which ui.perfetto.dev opens. */
void profile_trace(Sb *s, const char *model, const json_t *profile);
/* Prints the shapes that values took in a run with these inputs. Returns an exit code. */
int profile_shapes(Sb *s, const Cli *c, const braid_value *const *in);

/* Runs the model n times, or for a while if n is 0; the outputs are dropped. Returns an exit code.
 */
int profile_run(const Cli *c, braid_session *s, int nout, const braid_value *const *in, int n);
/* The critical path of a run of an emulated program with these inputs: an array, for each launch
 * what the emulator counted (codegen/emulate/count.cc). NULL after a message. */
json_t *counted_path(const Cli *c, const braid_value *const *in);
void counted_print(Sb *s, const json_t *launches);

#endif
