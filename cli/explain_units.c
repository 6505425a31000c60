/* explain_units.c: braid explain --units: what a model comes to on other numbers of cores. */
#include <stdlib.h>

#include "cli/explain.h"

/* Reads the next number of "4,8,16"; 0: it is none. */
static int next_units(const char **text) {
    char *end;
    const long n = **text >= '0' && **text <= '9' ? strtol(*text, &end, 10) : 0;
    if (n < 1 || n > EXPLAIN_UNITS_MOST || (*end && (*end != ',' || !end[1]))) return 0;
    *text = *end ? end + 1 : end;
    return (int)n;
}

int explain_units_read(const char *text, int units[EXPLAIN_UNITS]) {
    int n = 0;
    units[n++] = 1; /* what others are compared with */
    while (*text) {
        const int next = next_units(&text);
        if (!next || n == EXPLAIN_UNITS) return 0;
        if (next > 1) units[n++] = next;
    }
    return n;
}

static void print_row(Sb *s, const Scaling *k, const Scaling *one) {
    sb_printf(s, "%5d %5d %12.1f %12.1f %9.2f %14.0f %8.0f %12.1f %8.2f", k->units, k->team,
              k->busiest_ns / 1e3, k->mean_ns / 1e3, k->busiest_ns / k->mean_ns, k->bytes,
              k->synchronizations, k->estimate_ns / 1e3, one->estimate_ns / k->estimate_ns);
    if (k->worst && k->units > 1) sb_printf(s, "  %.1f %s", k->lost_ns / 1e3, k->worst);
    sb_puts(s, "\n");
}

static void print_row_json(Sb *s, const Scaling *k, const Scaling *one) {
    sb_printf(
        s,
        "{\"units\": %d, \"team\": %d, \"busiest_ns\": %.0f, \"mean_ns\": %.0f, \"bytes\": %.0f, "
        "\"synchronizations\": %.0f, \"estimate_ns\": %.0f, \"speedup\": %.4g, \"lost_ns\": "
        "%.0f, \"least_even\": ",
        k->units, k->team, k->busiest_ns, k->mean_ns, k->bytes, k->synchronizations, k->estimate_ns,
        one->estimate_ns / k->estimate_ns, k->lost_ns);
    if (k->worst)
        sb_json(s, k->worst);
    else
        sb_puts(s, "null");
    sb_puts(s, "}");
}

void explain_units(Sb *s, const char *model, bool json, int n, const Scaling *k) {
    if (json) {
        sb_puts(s, "{\"model\": ");
        sb_json(s, model);
        sb_puts(s, ", \"units\": [");
    } else
        sb_puts(
            s,
            "units  team   busiest us      mean us busiest/m  bytes of busy    syncs  estimate us "
            "speed-up  lost us by the group shared least evenly\n");
    for (int i = 0; i < n; i++) {
        if (json && i) sb_puts(s, ", ");
        if (json)
            print_row_json(s, &k[i], &k[0]);
        else
            print_row(s, &k[i], &k[0]);
    }
    if (json) sb_puts(s, "]}\n");
}
