/* explain.h: declarations that the files of braid explain share. */
#ifndef BRAID_CLI_EXPLAIN_H
#define BRAID_CLI_EXPLAIN_H

#include "cli/cli.h"
#include "codegen/compile.h"
#include "codegen/embed.h"
#include "scheduler/plan/scaling.h"
#include "utask/print.h"

/* What is said about a Program. */
typedef struct Explained {
    const Program *p;
    const Facts *f;         /* NULL: it is not scheduled */
    Printed printed;        /* its text, and the numbers in it */
    Map *number;            /* Stmt -> 1 + its number in the order of seq_each */
    VEC(const char *) kind; /* of each statement, by number: "loop", "group", ... */
} Explained;

/* f: see Explained.f. */
Explained explain_program(const Program *p, const Facts *f);
int explain_number(const Explained *x, const Stmt *s);
/* Appends `, "tree": [...]`: the statements, nested. */
void explain_tree(Sb *s, Explained *x);

/* Whether a core's part of the loop's constants stays near the core between iterations. */
bool explain_is_resident(const Program *p, const LoopFacts *l);
/* Appends `, "placement": [...]`: where every tensor lives, and the packed weights. Requires x->f.
 */
void explain_placement(Sb *s, Explained *x);

/* --units: the numbers of units in "4,8,16", 1 before them; returns how many, 0: text is none. */
#define EXPLAIN_UNITS 16
#define EXPLAIN_UNITS_MOST 1024
int explain_units_read(const char *text, int units[EXPLAIN_UNITS]);
/* Prints a row for each of n scaled programs, the first of one unit. */
void explain_units(Sb *s, const char *model, bool json, int n, const Scaling *k);

/* Writes a page that shows `json`, what `braid explain --json` prints of x, and the profile in a
 * file; profile NULL: none. Returns an exit code; prints messages. */
int explain_page(const char *path, const Sb *json, const Explained *x, const char *profile);
extern const EmbeddedText page_texts[]; /* page.html, .css and .js */

#endif
