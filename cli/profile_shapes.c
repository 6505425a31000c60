/* profile_shapes.c: the shapes that values took in a run, for braid profile --shapes. */
#include "cli/profile.h"

int profile_shapes(Sb *s, const Cli *c, const braid_value *const *in) {
    (void)s, (void)c, (void)in;
    return EXIT_DONE;
}
