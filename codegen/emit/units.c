/* units.c: the texts of a program in C: all of it as one, and as translation units.
 *
 * The units are compiled side by side and linked: one holds the kernel with what may be inlined
 * into it, one the hand-written bodies, one the entry, the others the functions that stand apart
 * (Kernel.apart). Bodies and entry are the same for many programs. Each unit begins with the same
 * texts and prototypes. */
#include "codegen/embed.h"
#include "codegen/emit/emit.h"

/* What a program in C has more that measures itself. */
static const char *const probes[] = {"counters.inc", "cpu/profile.inc", "probe.inc", NULL};
static const char measured_kernel[] =
    "BK_SHARED int braid_kernel(bk_ctx *k, int unit, int nunit) {\n"
    "    bk_profile *const prof = bk_profile_of(k, unit);\n"
    "    const int64_t begin = bk_profile_begin(prof);\n"
    "    const int st = braid_main(k, unit, nunit);\n"
    "    bk_profile_end(prof, begin, 1);\n"
    "    return st;\n"
    "}\n\n";

static void put_text(Sb *to, const Sb *from) {
    if (from->n) sb_write(to, from->p, from->n);
}

static void put_head(const Emit *em, Sb *text, const char *const *preludes) {
    sb_puts(text, "#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n");
    put_define(text, "BK_VEC", em->p->schedule->lanes);
    if (em->p->probes) sb_puts(text, "#define BK_PROFILE\n");
    sb_puts(text, embedded_text("braid_model.h"));
    put_embedded(text, preludes);
    put_probes(em, text, probes);
}

/* Functions [from, to) of those that stand apart. */
static void put_apart(const Emit *em, Sb *text, int from, int to) {
    for (int i = from; i < to; i++) sb_puts(text, em->apart.p[i]);
}

/* The kernel, and what it needs: functions that stand apart from number `from` on. */
static void put_main(Emit *em, Sb *text, const Sb *common, int from) {
    put_weights(em, text);
    put_text(text, common);
    put_text(text, &em->prototypes);
    put_apart(em, text, from, em->apart.n);
    put_kernel(em, text, em->p->probes ? "braid_main" : "braid_kernel");
    if (em->p->probes) sb_puts(text, measured_kernel);
    put_tables(em, text, "BK_SHARED");
}

/* A new translation unit that begins with `head`. */
static Sb *unit_new(const Emit *em, Texts *to, const Sb *head, bool same) {
    ASSERT(to->nunit < UNITS_MAX);
    Unit *u = &to->unit[to->nunit++];
    *u = (Unit){.text = {.a = em->a}, .same = same};
    sb_puts(&u->text, "#define BK_APART\n");
    put_text(&u->text, head);
    return &u->text;
}

/* Shares out the functions that stand apart by the size of their texts: `n` units of equal sizes.
 */
static void put_parts(const Emit *em, Texts *to, const Sb *head, const Sb *common, size_t bytes,
                      int n) {
    size_t done = 0;
    for (int u = 0, i = 0; u < n; u++) {
        const int from = i;
        while (i < em->apart.n && (done * (size_t)n < bytes * (size_t)(u + 1) || u == n - 1))
            done += strlen(em->apart.p[i++]);
        if (i == from) continue;
        Sb *part = unit_new(em, to, head, false);
        put_text(part, common);
        put_apart(em, part, from, i);
    }
}

void put_units(Emit *em, const char *const *preludes, const char *const *entry, Texts *to) {
    Sb head = {.a = em->a}, common = {.a = em->a}, *text = &to->text;
    size_t bytes = 0;
    for (int i = 0; i < em->apart.n; i++) bytes += strlen(em->apart.p[i]);
    const size_t most = bytes / UNIT_BYTES;
    const int parts = most < UNITS_MAX - 3 ? (int)most : UNITS_MAX - 3;
    put_head(em, &head, preludes);
    if (em->bodies.n) sb_puts(&common, embedded_text("extern/extern.inc"));
    put_text(&common, &em->helpers);
    put_text(&common, &em->kernels);

    sb_printf(text, "/* %s, compiled by braid for %s. */\n", emit_comment(em, em->p->name),
              em->p->schedule->device->name);
    put_text(text, &head);
    put_text(text, &em->bodies);
    put_main(em, text, &common, 0);
    put_numbers(em, text);
    put_entry(em, text, entry);
    put_torch(em, text);

    to->unit = NEWN(em->a, Unit, UNITS_MAX);
    Sb *kernel = unit_new(em, to, &head, false);
    put_main(em, kernel, &common, parts ? em->apart.n : 0);
    to->unit[0].brief = parts && em->p->calls_only;
    if (parts) put_parts(em, to, &head, &common, bytes, parts);
    if (em->bodies.n) put_text(unit_new(em, to, &head, !em->p->probes), &em->bodies);
    Sb *end = unit_new(em, to, &head, !em->p->probes && !em->p->torch_name);
    if (em->linearized.n) sb_puts(end, embedded_text("linearize.inc"));
    put_declarations(em, end);
    put_numbers(em, end);
    put_entry(em, end, entry);
    put_torch(em, end);
}
